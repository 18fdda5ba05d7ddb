"""LLVM IR of the field's operations: functions of one element each, and ufunc loops over arrays.

Their results equal those of `field` and `Oracle` in numpy, to the bit. Elements are less than p = 2^61 - 1; greater
numbers are special.
"""

from __future__ import annotations

from collections.abc import Sequence

_PRIME = (1 << 61) - 1
_COLUMNS = 4  # of a product of matrices that are computed together
_FOLDED = 32  # products of less than 2^122 that are added up in 128 bits before the sum is folded
_MIXING = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 0xD6E8FEB86659FD93))

# The functions that follow take and give elements; `i1 @odd` says that a number is none.
_ELEMENTS = """
declare i64 @llvm.umin.i64(i64, i64)
define internal i1 @odd(i64 %x) alwaysinline {
  %r = icmp ugt i64 %x, 2305843009213693950
  ret i1 %r
}
define internal i64 @less_p(i64 %x) alwaysinline {
  %t = sub i64 %x, 2305843009213693951
  %r = call i64 @llvm.umin.i64(i64 %x, i64 %t)
  ret i64 %r
}
define internal i64 @reduced(i64 %x) alwaysinline {
  %high = lshr i64 %x, 61
  %low = and i64 %x, 2305843009213693951
  %s = add i64 %high, %low
  %r = call i64 @less_p(i64 %s)
  ret i64 %r
}
define internal i128 @fold(i128 %x) alwaysinline {
  %high = lshr i128 %x, 61
  %low = and i128 %x, 2305843009213693951
  %r = add i128 %high, %low
  ret i128 %r
}
define internal i64 @product(i64 %a, i64 %b) alwaysinline {
  %wa = zext i64 %a to i128
  %wb = zext i64 %b to i128
  %w = mul i128 %wa, %wb
  %f = call i128 @fold(i128 %w)
  %s = trunc i128 %f to i64
  %r = call i64 @less_p(i64 %s)
  ret i64 %r
}
define internal i64 @multiply(i64 %a, i64 %b) alwaysinline {
  %r = call i64 @product(i64 %a, i64 %b)
  %oa = call i1 @odd(i64 %a)
  %ob = call i1 @odd(i64 %b)
  %o = or i1 %oa, %ob
  %f = select i1 %o, i64 -1, i64 %r
  ret i64 %f
}
define internal i64 @add(i64 %a, i64 %b) alwaysinline {
  %s = add i64 %a, %b
  %r = call i64 @less_p(i64 %s)
  %oa = call i1 @odd(i64 %a)
  %ob = call i1 @odd(i64 %b)
  %same = icmp eq i64 %a, %b
  %both = select i1 %same, i64 %a, i64 -1
  %left = select i1 %ob, i64 %both, i64 %a
  %right = select i1 %ob, i64 %b, i64 %r
  %f = select i1 %oa, i64 %left, i64 %right
  ret i64 %f
}
define internal i64 @negate(i64 %a) alwaysinline {
  %zero = icmp eq i64 %a, 0
  %n = sub i64 2305843009213693951, %a
  %r = select i1 %zero, i64 0, i64 %n
  %o = call i1 @odd(i64 %a)
  %least = icmp eq i64 %a, -9223372036854775808
  %greatest = icmp eq i64 %a, -9223372036854775807
  %g = select i1 %greatest, i64 -9223372036854775808, i64 -1
  %i = select i1 %least, i64 -9223372036854775807, i64 %g
  %f = select i1 %o, i64 %i, i64 %r
  ret i64 %f
}
define internal i64 @subtract(i64 %a, i64 %b) alwaysinline {
  %n = call i64 @negate(i64 %b)
  %r = call i64 @add(i64 %a, i64 %n)
  ret i64 %r
}
define internal i64 @inverted(i64 %x) {
entry:
  br label %next
next:
  %n = phi i32 [60, %entry], [%n1, %next]
  %r = phi i64 [1, %entry], [%r1, %next]
  %square = call i64 @product(i64 %r, i64 %r)
  %more = call i64 @product(i64 %square, i64 %x)
  %skips = icmp eq i32 %n, 1
  %r1 = select i1 %skips, i64 %square, i64 %more
  %n1 = sub i32 %n, 1
  %done = icmp eq i32 %n, 0
  br i1 %done, label %end, label %next
end:
  ret i64 %r1
}
define internal i64 @inverse(i64 %a) alwaysinline {
entry:
  %o = call i1 @odd(i64 %a)
  %zero = icmp eq i64 %a, 0
  %none = or i1 %o, %zero
  br i1 %none, label %special, label %plain
special:
  %least = icmp eq i64 %a, -9223372036854775808
  %greatest = icmp eq i64 %a, -9223372036854775807
  %infinite = or i1 %least, %greatest
  %s = select i1 %infinite, i64 0, i64 -1
  ret i64 %s
plain:
  %r = call i64 @inverted(i64 %a)
  ret i64 %r
}
define internal i64 @hashed(i64 %s) alwaysinline {
  %t = lshr i64 %s, 3
  %r = call i64 @reduced(i64 %t)
  ret i64 %r
}
define internal i64 @value1(i64 %added, i64 %factor, i64 %name, i64 %x) alwaysinline {
  %a = call i64 @mixed(i64 %x, i64 %added, i64 %factor)
  %b = xor i64 %a, %name
  %c = call i64 @mixed(i64 %b, i64 %added, i64 %factor)
  %h = call i64 @hashed(i64 %c)
  %u = icmp ugt i64 %x, -4
  %r = select i1 %u, i64 -1, i64 %h
  ret i64 %r
}
define internal i64 @value2(i64 %added, i64 %factor, i64 %name, i64 %x, i64 %y) alwaysinline {
  %a = call i64 @mixed(i64 %x, i64 %added, i64 %factor)
  %b = xor i64 %a, %name
  %c = call i64 @mixed(i64 %b, i64 %added, i64 %factor)
  %d = call i64 @mixed(i64 %y, i64 %added, i64 %factor)
  %e = xor i64 %d, %c
  %f = call i64 @mixed(i64 %e, i64 %added, i64 %factor)
  %h = call i64 @hashed(i64 %f)
  %u = icmp ugt i64 %x, -4
  %v = icmp ugt i64 %y, -4
  %w = or i1 %u, %v
  %r = select i1 %w, i64 -1, i64 %h
  ret i64 %r
}
define internal i64 @reciprocal(i64 %added, i64 %factor, i64 %name, i64 %x) alwaysinline {
entry:
  %up = shl i64 %x, 4
  %high = and i64 %up, 2305843009213693951
  %low = lshr i64 %x, 57
  %sixteen = add i64 %high, %low
  %o = call i1 @odd(i64 %x)
  %few = icmp ult i64 %sixteen, 16777216
  %above = icmp ugt i64 %sixteen, 2305843009196916735
  %below = icmp ult i64 %sixteen, 2305843009213693951
  %negative = and i1 %above, %below
  %small = or i1 %few, %negative
  %known = or i1 %o, %small
  br i1 %known, label %exact, label %random
exact:
  %i = call i64 @inverse(i64 %x)
  ret i64 %i
random:
  %r = call i64 @value1(i64 %added, i64 %factor, i64 %name, i64 %x)
  ret i64 %r
}
define internal i64 @keys(i64 %slope, i64 %shift, i64 %x) alwaysinline {
  %p = call i64 @product(i64 %x, i64 %slope)
  %s = add i64 %p, %shift
  %l = call i64 @reduced(i64 %s)
  %line = add i64 %l, 1
  %o = call i1 @odd(i64 %x)
  %least = icmp eq i64 %x, -9223372036854775808
  %greatest = icmp eq i64 %x, -9223372036854775807
  %g = select i1 %greatest, i64 4611686018427387904, i64 -1
  %i = select i1 %least, i64 0, i64 %g
  %r = select i1 %o, i64 %i, i64 %line
  ret i64 %r
}
define internal i64 @elements(i64 %inverse, i64 %shift, i64 %k) alwaysinline {
  %low = sub i64 %k, 1
  %s = sub i64 2305843009213693951, %shift
  %t = add i64 %low, %s
  %u = call i64 @reduced(i64 %t)
  %e = call i64 @product(i64 %u, i64 %inverse)
  %first = icmp eq i64 %k, 0
  %last = icmp eq i64 %k, 4611686018427387904
  %beyond = icmp ugt i64 %k, 4611686018427387904
  %g = select i1 %beyond, i64 -1, i64 %e
  %h = select i1 %last, i64 -9223372036854775807, i64 %g
  %r = select i1 %first, i64 -9223372036854775808, i64 %h
  ret i64 %r
}
"""

SCALARS = {  # operands of each
    "multiply": 2, "add": 2, "subtract": 2, "negate": 1, "inverse": 1, "product": 2, "value1": 4, "value2": 5,
    "reciprocal": 4, "keys": 3, "elements": 3,
}  # fmt: skip


def text() -> str:
    """Returns the functions, and a loop for each of `SCALARS` under its name with `_loop`; `matmul_loop` multiplies
    matrices.
    """
    return "\n".join((_ELEMENTS, _mixed(), *(_loop(*scalar) for scalar in SCALARS.items()), _matmul()))


def _mixed() -> str:
    """Mixes the bits of a number. The last step of the oracle's mixing shifts by half of the bits."""
    lines = ["%s = add i64 %x, %added", "%y0 = mul i64 %s, %factor"]
    for n, (shift, factor) in enumerate(_MIXING):
        lines += [f"%a{n} = lshr i64 %y{n}, {shift}", f"%b{n} = xor i64 %y{n}, %a{n}"]
        lines += [f"%y{n + 1} = mul i64 %b{n}, {factor - (1 << 64)}"]
    last = f"%y{len(_MIXING)}"
    lines += [f"%z = lshr i64 {last}, 32", f"%r = xor i64 {last}, %z", "ret i64 %r"]
    return _function("internal i64 @mixed(i64 %x, i64 %added, i64 %factor) alwaysinline", lines)


def _function(head: str, lines: Sequence[str]) -> str:
    return "\n".join((f"define {head} {{", *lines, "}"))


_LOOP_HEAD = "void {}(ptr %arrays, ptr %dims, ptr %steps, ptr %data)"


def _loop(name: str, operands: int) -> str:
    """Returns the loop of a ufunc with one result."""
    arrays = range(operands + 1)
    lines = ["entry:", "%count = load i64, ptr %dims"]
    for n in arrays:
        lines += _loaded(f"p{n}", "arrays", n, "ptr") + _loaded(f"s{n}", "steps", n)
    lines += ["br label %head", "head:", "%i = phi i64 [0, %entry], [%i1, %body]"]
    lines += [f"%a{n} = phi ptr [%p{n}, %entry], [%n{n}, %body]" for n in arrays]
    lines += ["%goes = icmp slt i64 %i, %count", "br i1 %goes, label %body, label %end", "body:"]
    lines += [f"%x{n} = load i64, ptr %a{n}, align 8" for n in range(operands)]
    arguments = ", ".join(f"i64 %x{n}" for n in range(operands))
    lines += [f"%r = call i64 @{name}({arguments})", f"store i64 %r, ptr %a{operands}, align 8"]
    lines += [f"%n{n} = getelementptr i8, ptr %a{n}, i64 %s{n}" for n in arrays]
    lines += ["%i1 = add i64 %i, 1", "br label %head", "end:", "ret void"]
    return _function(_LOOP_HEAD.format(f"@{name}_loop"), lines)


def _loaded(name: str, table: str, place: int, kind: str = "i64") -> list[str]:
    return [f"%q{name} = getelementptr i64, ptr %{table}, i64 {place}", f"%{name} = load {kind}, ptr %q{name}"]


def _matmul() -> str:
    """Returns the loop of a ufunc on matrices (m,n),(n,p)->(m,p): panels of columns by rows, each a sum in 128 bits per
    column. A special element makes its row or column undefined; their highest bit is set.
    """
    lines = ["entry:"]
    for n, name in enumerate(("uses", "m", "n", "p")):
        lines += _loaded(name, "dims", n)
    for n, name in enumerate(("ux", "uy", "uz", "xm", "xn", "yn", "yp", "zm", "zp")):
        lines += _loaded(name, "steps", n)
    for n, name in enumerate("xyz"):
        lines += _loaded(f"{name}0", "arrays", n, "ptr")
    lines += [f"%whole = sdiv i64 %p, {_COLUMNS}", f"%cut = mul i64 %whole, {_COLUMNS}", "br label %use", "use:"]
    lines += ["%u = phi i64 [0, %entry], [%u1, %used]"]
    lines += [f"%{a} = phi ptr [%{a}0, %entry], [%{a}1, %used]" for a in "xyz"]
    lines += ["%more = icmp slt i64 %u, %uses", "br i1 %more, label %panels, label %end"]
    lines += ["panels:", "call void @panels_wide(" + _PANEL.format(first="0", last="%cut") + ")"]
    lines += ["call void @panels_narrow(" + _PANEL.format(first="%cut", last="%p") + ")", "br label %used", "used:"]
    lines += [f"%{a}1 = getelementptr i8, ptr %{a}, i64 %u{a}" for a in "xyz"]
    lines += ["%u1 = add i64 %u, 1", "br label %use", "end:", "ret void"]
    loop = _function(_LOOP_HEAD.format("@matmul_loop"), lines)
    return "\n".join((_panels("panels_wide", _COLUMNS), _panels("panels_narrow", 1), loop))


_PANEL = ("ptr %x, ptr %y, ptr %z, i64 {first}, i64 {last}, i64 %m, i64 %n, i64 %xm, i64 %xn, i64 %yn, i64 %yp, "
          "i64 %zm, i64 %zp")  # fmt: skip


def _panels(name: str, width: int) -> str:
    """Returns a function that computes columns `first` to `last` of a product, so many at once."""
    columns = range(width)
    lines = ["entry:", "br label %panel", "panel:", "%j = phi i64 [%first, %entry], [%j1, %paneled]"]
    lines += ["%more = icmp slt i64 %j, %last", "br i1 %more, label %rows, label %end", "rows:"]
    lines += ["%yj = mul i64 %j, %yp", "%ypanel = getelementptr i8, ptr %y, i64 %yj"]
    lines += ["%zj = mul i64 %j, %zp", "%zpanel = getelementptr i8, ptr %z, i64 %zj", "br label %row"]
    lines += ["row:", "%i = phi i64 [0, %rows], [%i1, %stored]"]
    lines += ["%xrow = phi ptr [%x, %rows], [%xnext, %stored]", "%zrow = phi ptr [%zpanel, %rows], [%znext, %stored]"]
    lines += ["%rowed = icmp slt i64 %i, %m", "br i1 %rowed, label %terms, label %paneled"]
    # Sums of terms, folded after a few.
    lines += ["terms:", "%k = phi i64 [0, %row], [%kend, %folded]", "%xk = phi ptr [%xrow, %row], [%xe, %folded]"]
    lines += ["%yk = phi ptr [%ypanel, %row], [%ye, %folded]"]
    lines += [f"%t{c} = phi i128 [0, %row], [%f{c}, %folded]" for c in columns]
    lines += [f"%o{c} = phi i64 [0, %row], [%oe{c}, %folded]" for c in columns]
    lines += [f"%kmost = add i64 %k, {_FOLDED}", "%short = icmp slt i64 %n, %kmost"]
    lines += ["%kend = select i1 %short, i64 %n, i64 %kmost", "%some = icmp slt i64 %k, %n"]
    lines += ["br i1 %some, label %term, label %store", "term:", "%l = phi i64 [%k, %terms], [%l1, %term]"]
    lines += ["%xl = phi ptr [%xk, %terms], [%xe, %term]", "%yl = phi ptr [%yk, %terms], [%ye, %term]"]
    lines += [f"%s{c} = phi i128 [%t{c}, %terms], [%e{c}, %term]" for c in columns]
    lines += [f"%os{c} = phi i64 [%o{c}, %terms], [%oe{c}, %term]" for c in columns]
    lines += ["%a = load i64, ptr %xl, align 8", "%wa = zext i64 %a to i128"]
    for c in columns:
        lines += [f"%y{c} = getelementptr i8, ptr {f'%y{c - 1}, i64 %yp' if c else '%yl, i64 0'}"]
        lines += [f"%b{c} = load i64, ptr %y{c}, align 8", f"%wb{c} = zext i64 %b{c} to i128"]
        lines += [f"%m{c} = mul i128 %wa, %wb{c}", f"%e{c} = add i128 %s{c}, %m{c}"]
        lines += [f"%ab{c} = or i64 %a, %b{c}", f"%oe{c} = or i64 %os{c}, %ab{c}"]
    lines += ["%xe = getelementptr i8, ptr %xl, i64 %xn", "%ye = getelementptr i8, ptr %yl, i64 %yn"]
    lines += ["%l1 = add i64 %l, 1", "%on = icmp slt i64 %l1, %kend", "br i1 %on, label %term, label %folded"]
    lines += ["folded:"]
    lines += [f"%f{c} = call i128 @fold(i128 %e{c})" for c in columns]
    lines += ["br label %terms", "store:"]
    for c in columns:
        lines += [f"%g{c} = call i128 @fold(i128 %t{c})", f"%h{c} = trunc i128 %g{c} to i64"]
        lines += [f"%r{c} = call i64 @reduced(i64 %h{c})", f"%odd{c} = icmp slt i64 %o{c}, 0"]
        lines += [f"%v{c} = select i1 %odd{c}, i64 -1, i64 %r{c}"]
        lines += [f"%z{c} = getelementptr i8, ptr {f'%z{c - 1}, i64 %zp' if c else '%zrow, i64 0'}"]
        lines += [f"store i64 %v{c}, ptr %z{c}, align 8"]
    lines += ["br label %stored", "stored:", "%xnext = getelementptr i8, ptr %xrow, i64 %xm"]
    lines += ["%znext = getelementptr i8, ptr %zrow, i64 %zm", "%i1 = add i64 %i, 1", "br label %row"]
    lines += ["paneled:", f"%j1 = add i64 %j, {width}", "br label %panel", "end:", "ret void"]
    return _function(f"internal void @{name}({_PANEL.format(first='%first', last='%last')})", lines)
