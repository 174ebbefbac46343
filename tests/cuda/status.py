"""status.py - every call of CUDA, cuBLASLt, NCCL and cuDNN has its status looked at. Prints TAP.

A call whose result goes nowhere stands where a statement begins, or behind a cast to void. All others are an operand of
something: of a checking macro, a comparison, an assignment, a return. What is assigned and never read the compiler
finds.
"""

import os
import re
import sys

CALL = re.compile(r"\b(?:cuda|cublasLt|cudnn|nccl|cu)[A-Z]\w*\s*\(")
# These return no status.
NO_STATUS = {"cudaGetErrorString", "cudaGetErrorName", "cublasLtGetStatusName", "cublasLtGetVersion",
             "ncclGetErrorString", "ncclGetLastError", "cudnnGetErrorString",
             "cudnnGetLastErrorString", "cudnnGetVersion"}
# The words before a call that make it an operand. A "(", "," or operator does too; nothing else does.
OPERAND_WORDS = {"return", "case"}


def blank(match):
    return re.sub(r"[^\n]", " ", match.group(0))


def strip(text):
    """Comments and strings as blanks, and joined lines of macros; the lines keep their numbers."""
    text = re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', blank, text, flags=re.S)
    return text.replace("\\\n", " \n")


def table_begins(before):
    """Where the expression begins whose member is called: lt-> or device_cuda(dev)->matmul->lt."""
    at = len(before.rstrip())
    while at > 0 and (before[at - 1] == "." or before[at - 2:at] == "->"):
        at -= 1 if before[at - 1] == "." else 2
        while at > 0 and before[at - 1].isspace():
            at -= 1
        depth = 0
        while at > 0 and (depth or before[at - 1].isalnum() or before[at - 1] in "_)]"):
            at -= 1
            depth += (before[at] in ")]") - (before[at] in "([")
    return at


def unchecked(text):
    """Line numbers and names of calls whose status goes nowhere."""
    text = strip(text)
    found = []
    count = 0
    for match in CALL.finditer(text):
        name = re.match(r"\w+", match.group(0)).group(0)
        before = text[:match.start()]
        before = before[:table_begins(before)].rstrip()
        line = text[text.rfind("\n", 0, match.start()) + 1:match.start()]
        if name in NO_STATUS or re.match(r"\s*#\s*define\s+$", line):
            continue
        count += 1
        word = re.search(r"\w+$", before)
        operand = word.group(0) in OPERAND_WORDS if word else before[-1:] in tuple("(,=!&|?:<>+-")
        if not operand:
            found.append((text.count("\n", 0, match.start()) + 1, name))
    return found, count


PLANTED = {
    "cudaFree(x);": 1,
    "{ cudaFree(x); }": 1,
    "if (x)\n    cudaFree(x);": 1,
    "(void)cudaFree(x);": 1,
    "lt->cublasLtDestroy(handle);": 1,
    "x(y)->z.cublasLtDestroy(handle);": 1,
    "CUDA_OK(dev, cudaFree(x)); ncclGroupEnd();": 1,
    "else cuMemUnmap(at, bytes);": 1,
    "if (!CUDA_OK(dev, cudaFree(x))) return;": 0,
    "status = cudaFree(x);": 0,
    "return lt->cublasLtDestroy(handle);": 0,
    "if (x && LT_OK(dev, x(y)->lt.cublasLtDestroy(handle)))": 0,
    "/* cudaFree(x); */ puts(\"cudaFree(x);\");": 0,
}


def sources(top):
    """But for the stand-in, which defines these functions."""
    for room in ("common", "kernels", "trainer", "bench", "tests/cuda"):
        for folder, _, names in sorted(os.walk(os.path.join(top, room))):
            for name in sorted(names) if not folder.endswith("standin") else []:
                if name.endswith((".c", ".cu", ".h", ".cc")):
                    yield os.path.join(folder, name)


def main():
    top = os.environ.get("top_srcdir", ".")
    number, calls, bad = 2, 0, []
    wrong = [text for text, count in PLANTED.items() if len(unchecked(text)[0]) != count]
    for text in wrong:
        print("# judged wrongly: %r" % text)
    print("%s 1 - calls that were planted are judged rightly" % ("not ok" if wrong else "ok"))
    for path in sources(top):
        with open(path, encoding="utf-8") as file:
            found, count = unchecked(file.read())
        calls += count
        bad += ["%s:%d: %s" % (os.path.relpath(path, top), line, name) for line, name in found]
    for text in bad:
        print("# %s: its status is not looked at" % text)
    print("%s 2 - the status of all %d calls is looked at" % ("not ok" if bad or calls < 20 else "ok", calls))
    print("1..%d" % number)


if __name__ == "__main__":
    sys.exit(main())
