"""Commands that take a stack's name without ``-s``, too: ``divvy plan prod``."""

from __future__ import annotations

from typing import Any

from typer import TyperException
from typer.core import TyperCommand

_STACK = "--stack"


class BareStackCommand(TyperCommand):
    """A command whose arguments, where it has no others, are the names of stacks."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse a command line, with each bare name as a value of ``--stack``."""
        option = next((param for param in self.params if _STACK in param.opts), None)
        others = any(param.param_type_name == "argument" for param in self.params)
        if option is None or others or ctx.resilient_parsing:
            return list(super().parse_args(ctx, args))
        options, names, _ = self.make_parser(ctx).parse_args(args=list(args))
        given = option.name in options
        if not names or (not option.multiple and (given or len(names) > 1)):
            return list(super().parse_args(ctx, args))
        for name in names:
            args = [*_without(self, ctx, args, name), _STACK, name]
        return list(super().parse_args(ctx, args))


def _without(command: TyperCommand, ctx: Any, args: list[str], name: str) -> list[str]:
    """Return a command line without a bare name, which may be the value of an option as well."""
    _, before, _ = command.make_parser(ctx).parse_args(args=list(args))
    for at, arg in enumerate(args):
        if arg != name:
            continue
        rest = [*args[:at], *args[at + 1 :]]
        try:
            _, names, _ = command.make_parser(ctx).parse_args(args=list(rest))
        except TyperException:
            continue  # the value of an option: without it the line is wrong
        if len(names) == len(before) - 1:
            return rest
    return args
