"""What a terminal may be sent: names and cells of a file can hold commands to it."""

KEPT = "\n\t"
"""Control characters that only move on."""

CONTROLS = {
    code: chr(0x2400 + code) if code < 0x20 else "␡" if code == 0x7F else "�"
    for code in (*range(0x20), *range(0x7F, 0xA0))
    if chr(code) not in KEPT
}
"""A picture for each: an escape could otherwise rename the window or hide what was printed."""


def printable(text: str) -> str:
    r"""A text whose control characters are shown and not obeyed.

    Example:
        >>> printable("a\x1b[2Jb\n")
        'a␛[2Jb\n'
    """
    return text.translate(CONTROLS)
