"""Native code for element-wise and reducing programs: an IR of loops, its printers, and the lowering to it."""
