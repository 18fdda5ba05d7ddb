"""A program whose names and metadata are markup and scripts."""

from __future__ import annotations

HOSTILE = "</script><img src=x onerror=alert(1)>\\\"&'<b>"
ATTACK = f"""HloModule attack
ENTRY main {{
  x = f32[8,8] parameter(0), sharding={{mesh['<i>a'=2,'y'=4], [{{'<i>a'}}, {{}}]}}, metadata={{op_name="{HOSTILE}" source_file="{HOSTILE}" source_line=1}}
  w = f32[8,8] parameter(1), sharding={{mesh['<i>a'=2,'y'=4], [{{'<i>a'}}, {{'y'}}]}}, metadata={{op_name="<script>alert(2)</script>"}}
  ROOT y = f32[8,8] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}, metadata={{op_name="{HOSTILE}" source_file="<u>.py" source_line=2}}
}}
"""  # noqa: E501
