"""What MIG must do, typed from the vendor's published tables and from cards' print-outs.

Written apart from the GPU models' data, so that planner, simulator and this cannot share a
mistake unseen.
"""

from dataclasses import dataclass, field

# profile identifier: (name, compute slices, memory slices, starts, most on one GPU)
A100_40 = {
    19: ("1g.5gb", 1, 1, (0, 1, 2, 3, 4, 5, 6), 7),
    20: ("1g.5gb+me", 1, 1, (0, 1, 2, 3, 4, 5, 6), 1),
    15: ("1g.10gb", 1, 2, (0, 2, 4, 6), 4),
    14: ("2g.10gb", 2, 2, (0, 2, 4), 3),
    9: ("3g.20gb", 3, 4, (0, 4), 2),
    5: ("4g.20gb", 4, 4, (0,), 1),
    0: ("7g.40gb", 7, 8, (0,), 1),
}
H100_80 = {
    19: ("1g.10gb", 1, 1, (0, 1, 2, 3, 4, 5, 6), 7),
    20: ("1g.10gb+me", 1, 1, (0, 1, 2, 3, 4, 5, 6), 1),
    15: ("1g.20gb", 1, 2, (0, 2, 4, 6), 4),
    14: ("2g.20gb", 2, 2, (0, 2, 4), 3),
    9: ("3g.40gb", 3, 4, (0, 4), 2),
    5: ("4g.40gb", 4, 4, (0,), 1),
    0: ("7g.80gb", 7, 8, (0,), 1),
}
A30 = {
    14: ("1g.6gb", 1, 1, (0, 1, 2, 3), 4),
    21: ("1g.6gb+me", 1, 1, (0, 1, 2, 3), 1),
    5: ("2g.12gb", 2, 2, (0, 2), 2),
    0: ("4g.24gb", 4, 4, (0,), 1),
}
RTX_PRO_6000 = {
    14: ("1g.24gb", 1, 3, (0, 3, 6, 9), 4),
    21: ("1g.24gb+me", 1, 3, (0, 3, 6, 9), 1),
    47: ("1g.24gb+gfx", 1, 3, (0, 3, 6, 9), 4),
    65: ("1g.24gb+me.all", 1, 3, (0, 3, 6, 9), 1),
    67: ("1g.24gb-me", 1, 3, (0, 3, 6, 9), 4),
    5: ("2g.48gb", 2, 6, (0, 6), 2),
    35: ("2g.48gb+gfx", 2, 6, (0, 6), 2),
    64: ("2g.48gb+me.all", 2, 6, (0, 6), 1),
    66: ("2g.48gb-me", 2, 6, (0, 6), 2),
    0: ("4g.96gb", 4, 12, (0,), 1),
    32: ("4g.96gb+gfx", 4, 12, (0,), 1),
}
# What may be cut out of a GPU instance of so many slices: slices → how many at most.
COMPUTE = {
    1: {1: 1},
    2: {1: 2, 2: 1},
    3: {1: 3, 2: 1, 3: 1},
    4: {1: 4, 2: 2, 3: 1, 4: 1},
    7: {1: 7, 2: 3, 3: 2, 4: 1, 7: 1},
}


@dataclass
class Oracle:
    """A GPU as the tables say it behaves: which placements are taken."""

    table: dict[int, tuple[str, int, int, tuple[int, ...], int]]
    placed: dict[int, tuple[int, int]] = field(default_factory=dict)  # key → (profile, start)

    @property
    def compute_slices(self) -> int:
        return max(row[1] for row in self.table.values())

    def fits(self, profile: int, start: int) -> bool:
        name, compute, memory, starts, most = self.table[profile]
        if start not in starts:
            return False
        wanted = set(range(start, start + memory))
        for other, at in self.placed.values():
            if wanted & set(range(at, at + self.table[other][2])):
                return False
        used = sum(self.table[other][1] for other, _ in self.placed.values())
        same = sum(other == profile for other, _ in self.placed.values())
        media = "+me" in name and any("+me" in self.table[o][0] for o, _ in self.placed.values())
        # One that has all media engines leaves room for those without any.
        names = [name, *(self.table[other][0] for other, _ in self.placed.values())]
        with_engines = sum(not profile_name.endswith("-me") for profile_name in names)
        taken = with_engines > 1 and any("+me.all" in profile_name for profile_name in names)
        taken = taken and not name.endswith("-me")
        return used + compute <= self.compute_slices and same < most and not (media or taken)

    def room(self, profile: int) -> int:
        """How many more instances fit: tried out on a copy."""
        copy = Oracle(self.table, dict(self.placed))
        count = 0
        for start in self.table[profile][3]:
            if copy.fits(profile, start):
                copy.placed[-1 - count] = (profile, start)
                count += 1
        return count
