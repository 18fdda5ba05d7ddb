"""Machine code of sequences, loops and branches that can pause, so that Python can check the time and resume them.

The first word of a block says whether its execution has ended; if not, the next call resumes it. Only loops pause by
themselves, when the budget of a run is used up. Steps that never pause name a word that is always 1.
"""

from __future__ import annotations

from .products.assembly import Assembly

PRED, SIGNED, LONG = range(3)  # how a selector is stored: as pred (true: branch 0), as s32, or in 64 bits


def control_flow() -> list[str]:
    """Returns the text of the functions `sequence`, `loop` and `choose`, which need `run`, and `place`."""
    return [_sequence(), _loop(), _choose(), _place()]


def _ended(f: Assembly, block: str) -> str:
    return f.value(f"icmp ne i64 {f.value(f'load i64, ptr {block}')}, 0")


def _put_truth(f: Assembly, truth: str, place: str) -> None:
    f.line(f"store i64 {f.value(f'zext i1 {truth} to i64')}, ptr {place}")


def _sequence() -> str:
    """Runs a sequence. Words: whether it has ended, the step to resume at, the number of steps, and for each step (one
    at least) its function, its block, and the address of the word that says whether the step has ended.
    """
    f = Assembly("define void @sequence(ptr %block)")
    going, place, count = f.value("alloca i1"), f.at("%block", 8), f.word("%block", 2)
    f.line("store i64 0, ptr %block")
    f.line(f"store i1 true, ptr {going}")
    with f.while_true(going):
        number = f.value(f"load i64, ptr {place}")
        entry = f.step(f.at("%block", 24), number, "24")
        function, inner, said = (f.value(f"load ptr, ptr {f.at(entry, 8 * n)}") for n in range(3))
        f.line(f"call void {function}(ptr {inner})")
        has_ended = _ended(f, said)
        f.line(f"store i1 {has_ended}, ptr {going}")
        with f.when(has_ended):
            following = f.integer("add", number, 1)
            is_last = f.value(f"icmp eq i64 {following}, {count}")
            f.line(f"store i64 {f.choice(is_last, '0', following)}, ptr {place}")
            _put_truth(f, is_last, "%block")
            f.line(f"store i1 {f.nor(is_last)}, ptr {going}")
    return f.text()


def _loop() -> str:
    """Runs a loop. Words of its block: whether it has ended, which of two states is current, whether a trip has begun,
    the address of the budget that all loops of this run share, and the cost of a trip. Then, for each state, the
    sequence of the condition, its result, and the sequence of the body, which writes the other state.
    """
    f = Assembly("define void @loop(ptr %block)")
    going, state, begun = f.value("alloca i1"), f.at("%block", 8), f.at("%block", 16)
    left, cost = f.value(f"load ptr, ptr {f.at('%block', 24)}"), f.word("%block", 4)
    f.line("store i64 0, ptr %block")
    f.line(f"store i1 true, ptr {going}")
    with f.while_true(going):
        current = f.value(f"load i64, ptr {state}")
        words = f.step(f.at("%block", 40), current, "24")
        condition, result, body = (f.value(f"load ptr, ptr {f.at(words, 8 * n)}") for n in range(3))
        with f.when(f.nor(_ended(f, begun))):
            f.line(f"call void @sequence(ptr {condition})")
            is_known = _ended(f, condition)
            f.line(f"store i1 {is_known}, ptr {going}")
            with f.when(is_known):
                more = f.value(f"icmp ne i8 {f.value(f'load i8, ptr {result}')}, 0")
                _put_truth(f, more, begun)
                _put_truth(f, f.nor(more), "%block")
                f.line(f"store i1 {more}, ptr {going}")
        with f.when(f.value(f"load i1, ptr {going}")):
            f.line(f"call void @sequence(ptr {body})")
            is_made = _ended(f, body)
            f.line(f"store i1 {is_made}, ptr {going}")
            with f.when(is_made):
                f.line(f"store i64 {f.integer('sub', '1', current)}, ptr {state}")
                f.line(f"store i64 0, ptr {begun}")
                rest = f.integer("sub", f.value(f"load i64, ptr {left}"), cost)
                f.line(f"store i64 {rest}, ptr {left}")
                f.line(f"store i1 {f.value(f'icmp sgt i64 {rest}, 0')}, ptr {going}")
    return f.text()


def _choose() -> str:
    """Runs a branch. Words: whether it has ended, the chosen branch (-1: none yet), the address of the selector, its
    storage type, the number of branches, and the sequence of each. An index out of range chooses the last one.
    """
    f = Assembly("define void @choose(ptr %block)")
    chosen, selector = f.at("%block", 8), f.value(f"load ptr, ptr {f.at('%block', 16)}")
    kind, count = f.word("%block", 3), f.word("%block", 4)
    f.line("store i64 0, ptr %block")
    with f.when(f.value(f"icmp slt i64 {f.value(f'load i64, ptr {chosen}')}, 0")):
        for number, (stored, extend) in enumerate((("i8", "zext"), ("i32", "sext"), ("i64", ""))):
            with f.when(f.value(f"icmp eq i64 {kind}, {number}")):
                x = f.value(f"load {stored}, ptr {selector}")
                wide = f.value(f"{extend} {stored} {x} to i64") if extend else x
                index = f.choice(f.value(f"icmp eq i64 {wide}, 0"), "1", "0") if number == PRED else wide
                is_inside = f.value(f"icmp ult i64 {index}, {count}")
                f.line(f"store i64 {f.choice(is_inside, index, f.integer('sub', count, 1))}, ptr {chosen}")
    place = f.step(f.at("%block", 40), f.value(f"load i64, ptr {chosen}"), "8")
    branch = f.value(f"load ptr, ptr {place}")
    f.line(f"call void @sequence(ptr {branch})")
    with f.when(_ended(f, branch)):
        f.line(f"store i64 -1, ptr {chosen}")
        f.line("store i64 1, ptr %block")
    return f.text()


def _place() -> str:
    """Puts addresses into code. Words: their number, the address of the bases of arrays, and for each the word to
    write, the number of its base, and how far behind that it lies.
    """
    f = Assembly("define void @place(ptr %block)")
    bases = f.value(f"load ptr, ptr {f.at('%block', 8)}")
    with f.loop(f.word("%block", 0)) as n:
        entry = f.step(f.at("%block", 16), n, "24")
        target, base = f.value(f"load ptr, ptr {entry}"), f.step(bases, f.word(entry, 1), "8")
        f.line(f"store i64 {f.integer('add', f.word(base, 0), f.word(entry, 2))}, ptr {target}")
    return f.text()
