"""house.py - the rules of CONTRIBUTING.md that a program can check. Reads the tree and the built objects; prints TAP.

Includes, and the symbols that an object takes from another, are checked against the table of rooms in CONTRIBUTING.md
itself. A row names a room, or a folder of a room, and
the rooms that it may call; the text after a semicolon is not read. A folder may call what its room may call, and a room
its own folders. "only interface `x.h`" in the first column: other rooms include only that header. In a table "folder of
`room/`", each folder may include from those above it.

There are no exceptions.
"""

import collections
import os
import re
import subprocess
import sys

RULES = (
    "no include that the table of rooms does not allow",
    "no call that the table of rooms does not allow",
    "no include of tests/",
    "no test that no list names",
    "no struct name twice",
    "no file name twice",
    "no folder with more than 40 files",
    "no static function with a name of one word",
)
ROOMS = ("common", "plan", "kernels", "tokenizer", "ckpt", "trainer", "srun-plugin")
SOURCES = (".c", ".h", ".cc", ".cu")
BUILT = (".o", ".lo", ".la", ".d", ".ptxas", ".so", ".a")

top = os.environ.get("top_srcdir", os.path.join(os.path.dirname(__file__), "..", ".."))
built = os.environ.get("top_builddir", top)


def read_file(path):
    with open(os.path.join(top, path), encoding="utf-8") as file:
        return file.read()


def find_files():
    """Every file of the product, by path, without what an in-tree build makes."""
    for room in ROOMS:
        for folder, folders, names in os.walk(os.path.join(top, room)):
            folders[:] = sorted(f for f in folders if not f.startswith("."))
            for name in sorted(names):
                if not name.startswith(".") and not name.endswith(BUILT):
                    yield os.path.relpath(os.path.join(folder, name), top)


class Table:
    """The table of rooms in CONTRIBUTING.md."""

    def __init__(self, text):
        self.calls, self.interfaces, self.folders = {}, {}, {}
        ordered = None  # the folders of the table that is being read
        for line in text.splitlines():
            head, row = re.match(r"\| folder of `([\w-]+/)`", line), re.match(r"\| `(\w+/)` \|", line)
            if head:
                ordered = self.folders[head.group(1)] = []
            elif ordered is not None and row:
                ordered.append(list(self.folders)[-1] + row.group(1))
            elif not line.startswith("|"):
                ordered = None
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            room = re.match(r"`([\w/-]+/)`", cells[0])
            if line.startswith("|") and len(cells) == 2 and room and room.group(1).split("/")[0] in ROOMS:
                self.calls[room.group(1)] = set(re.findall(r"`([\w/-]+/)`", cells[1].split(";")[0]))
                interfaces = re.findall(r"only interface `([\w/.-]+\.h)`", cells[0])
                if interfaces:
                    self.interfaces[room.group(1)] = interfaces

    def room_of(self, path):
        rooms = [room for room in self.calls if path.startswith(room)]
        return max(rooms, key=len) if rooms else None

    def refuses(self, path, included, is_call=False):
        """Why `path` may not include or call `included`; None if it may."""
        here, there = self.room_of(path), self.room_of(included)
        if there is None:
            return f"{included} is in no room of the table"
        house = here.split("/")[0] + "/"
        allowed = self.calls[here] | self.calls[house] | {here}
        if here == house:
            allowed |= {room for room in self.calls if room.startswith(house)}
        order = self.folders.get(house, [])
        levels = [next((i for i, folder in enumerate(order) if p.startswith(folder)), None) for p in (path, included)]
        if order and included.startswith(house) and included.count("/") > 1:
            if None in levels:
                return f"one of the two is in no folder of {house}'s table"
            if levels[1] > levels[0]:
                return f"{order[levels[0]]} may not call {order[levels[1]]}, which is below it in the table"
        if there not in allowed and there.split("/")[0] + "/" not in allowed - {house}:
            return f"{here} may not call {there}"
        room = there.split("/")[0] + "/"
        if not is_call and room != house and room in self.interfaces and included not in self.interfaces[room]:
            return f"the only interface of {room} is {' '.join(self.interfaces[room])}"
        return None


def check_includes(files, table):
    for path in files:
        for included in re.findall(r'^\s*#\s*include\s+"([^"]+)"', read_file(path), re.M):
            if included.split("/")[0] in ROOMS:
                reason = table.refuses(path, included)
                if reason:
                    yield f"{path}: {included}: {reason}"


def find_objects(files):
    """Every built object of these sources, with its source."""
    stems = collections.defaultdict(list)
    for path in files:
        stems[os.path.dirname(path)].append(os.path.splitext(os.path.basename(path))[0])
    for room in ROOMS:
        for folder, _, names in os.walk(os.path.join(built, room)):
            home = os.path.relpath(folder, built).removesuffix("/.libs")
            for name in (name[:-2] for name in names if name.endswith(".o") and not name.startswith("tests_")):
                for stem in stems[home]:  # LIBRARY_la-STEM.o
                    if name == stem or name.endswith("-" + stem) and "-" not in name[: -len(stem) - 1]:
                        yield os.path.join(folder, name + ".o"), os.path.join(home, stem + ".c")


def check_calls(files, table):
    objects = dict(find_objects([path for path in files if path.endswith((".c", ".cc"))]))
    defined, wanted = {}, set()
    lines = subprocess.run(["nm", "-A", "-g", *objects], text=True, capture_output=True).stdout.splitlines()
    for name, rest in (line.split(":", 1) for line in lines):
        *_, kind, symbol = rest.split()
        if kind in "Uw":
            wanted.add((objects[name], symbol))
        else:
            defined[symbol] = objects[name]
    if not wanted:
        yield f"no symbols of built objects below {built}"
    for path, symbol in sorted(wanted):
        reason = table.refuses(path, defined[symbol], is_call=True) if symbol in defined else None
        if reason:
            yield f"{path}: {symbol} of {defined[symbol]}: {reason}"


def check_tests(files):
    for path in files:
        for included in re.findall(r'^\s*#\s*include\s+"(tests/[^"]+)"', read_file(path), re.M):
            yield f"{path}: {included}"


def check_lists(files):
    """A test that no list names is never run. The sources of the tests in C are named by their programs."""
    folder = os.path.join(top, "tests")
    lists = "".join(read_file(f"tests/{name}") for name in sorted(os.listdir(folder)) if name.endswith(".am"))
    for inner in sorted(os.listdir(folder)):
        path = os.path.join(folder, inner)
        for name in sorted(os.listdir(path)) if os.path.isdir(path) else []:
            test = f"tests/{inner}/{name}"
            if name.endswith((".bats", ".sh")) and test not in lists:
                yield f"{test}: in no tests/*.am"


def find_twice(named):
    """The places of each name that has several, from pairs of name and place."""
    places = collections.defaultdict(list)
    for name, place in named:
        places[name].append(place)
    for name, same in sorted(places.items()):
        if len(same) > 1:
            yield f"{name}: {' '.join(same)}"


def check_structs(files):
    structs = re.compile(r"^(?:typedef )?struct (\w+)\s*\{", re.M)
    return find_twice((name, path) for path in files for name in structs.findall(read_file(path)))


def check_names(files):
    return find_twice((os.path.basename(path), path) for path in files)


def check_folders(files):
    for folder, count in sorted(collections.Counter(map(os.path.dirname, files)).items()):
        if count > 40:
            yield f"{folder}/: {count} files"


def check_statics(files):
    pattern = re.compile(r"^(?:template <.*> )?static [^=(;{]*?[\s*](\w+)\(", re.M)
    for path in files:
        for name in sorted(set(pattern.findall(read_file(path)))):
            if "_" not in name:
                yield f"{path}: {name}"


def main():
    files = list(find_files())
    sources = [path for path in files if path.endswith(SOURCES)]
    table = Table(read_file("CONTRIBUTING.md"))
    missing = [room for room in ROOMS if room + "/" not in table.calls]
    found = (
        check_includes(sources, table),
        check_calls(sources, table),
        check_tests(sources),
        check_lists(sources),
        check_structs(sources),
        check_names(sources),
        check_folders(files),
        check_statics(sources),
    )
    failed = bool(missing)
    print(f"1..{len(RULES) + 1}")
    print("not ok" if missing else "ok", "1 - the table of rooms has a row for every room", " ".join(missing))
    for number, (rule, places) in enumerate(zip(RULES, found), 2):
        places = list(places)
        failed |= bool(places)
        print("not ok" if places else "ok", number, "-", rule)
        for place in places:
            print("#", place)
    return failed


sys.exit(main())
