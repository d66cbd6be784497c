# Copyright 2026 The JAX Authors. All Rights Reserved.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
# ==============================================================================
"""The instruction table: what is modelled, written as the ISA writes it.

    @instruction(
        "add[.<sat>].<type:s32|u32>", "d, a, b", section="9.7.1.1 (add)")
    def add(op):  # Runs once, when the kernel is decoded.
      dtype = DTYPES[op.type]
      def execute(step):  # Runs for every step.
        step.write(op.d, step.read(op.a, dtype) + step.read(op.b, dtype))
      return execute

Opcode template: literal text; `<field:a|b>` a choice, `<field>` short for
`<field:field>`; `[...]` an optional part, whose fields are None if absent.

Operand template, a comma list of
  `a`            register, constant, symbol, special register, label, function,
                 or `_`
  `!a`           predicate that may be negated
  `[a]`          address
  `{a}`          vector
  `a|p`, `a[|p]` destination with a predicate, required or optional (None)
  `[a, {c}]`     address with a vector, as TMA coordinates: op.a and op.c
  `(a)`          arguments or results of a call
and a final `?` on an item that may be missing (then it is None). An instruction
may stack several decorators; the first template that fits wins.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import pkgutil
import re
from typing import Any, Callable

from . import errors, ptx

Execute = Callable[[Any], None]


class Op:
  """A decoded instruction: a field or operand per name of the template.

  Attributes:
    instruction: the `ptx.Instruction`.
    context: the `machine.Context` of this decoding (kernel, symbols, ...).
  """

  instruction: ptx.Instruction
  context: Any

  def __init__(self, instruction: ptx.Instruction, context: Any, values):
    self.instruction = instruction
    self.context = context
    self.__dict__.update(values)

  def __getattr__(self, name: str) -> Any:  # Only for names not set.
    raise AttributeError(
        f"The template of `{self.instruction.opcode}` has no {name!r}."
    )

  def unsupported(self, reason: str) -> errors.UnsupportedPtxError:
    """The error to raise for a combination that is not modelled."""
    return unsupported(self.instruction, reason)


def unsupported(
    instruction: ptx.Instruction, reason: str
) -> errors.UnsupportedPtxError:
  return errors.UnsupportedPtxError(
      f"Not modelled: `{instruction.opcode}`: {reason}",
      errors.Where(instruction.line, instruction.text),
  )


@dataclasses.dataclass(frozen=True)
class _Operand:
  """An item of an operand template."""

  # plain, negatable, address, vector, pair, address_vector, arguments
  kind: str
  name: str
  second: str = ""  # Predicate of a pair, vector of address_vector.
  second_optional: bool = False
  optional: bool = False

  def match(self, operand: ptx.Operand) -> dict[str, Any] | None:
    match self.kind, operand:
      case "pair", ptx.Pair(first, second):
        return {self.name: first, self.second: second}
      case "pair", ptx.Register() | ptx.Sink() if self.second_optional:
        return {self.name: operand, self.second: None}
      case "address_vector", ptx.AddressWithVector(base, vector):
        return {self.name: base, self.second: vector}
      case "address", ptx.Address():
        return {self.name: operand}
      case "vector", ptx.Vector():
        return {self.name: operand}
      case "arguments", ptx.Arguments():
        return {self.name: operand}
      case "negatable", ptx.Negated() | ptx.Register() | ptx.Immediate():
        return {self.name: operand}
      case "plain", (
          ptx.Register() | ptx.Immediate() | ptx.Symbol() | ptx.Sink()
          | ptx.Special() | ptx.Label() | ptx.Function()
      ):
        return {self.name: operand}
    return None

  def absent(self) -> dict[str, None]:
    return dict.fromkeys(filter(None, (self.name, self.second)))


@dataclasses.dataclass(frozen=True)
class Entry:
  """A template and the function that decodes what fits it."""

  opcode: str
  operands: str
  section: str
  aligned: bool
  decode: Callable[[Op], Execute]
  regex: re.Pattern[str]
  items: tuple[_Operand, ...]

  def match_operands(
      self, operands: tuple[ptx.Operand, ...]
  ) -> dict[str, Any] | None:
    if len(operands) > len(self.items):
      return None
    values = {}
    for i, item in enumerate(self.items):
      if i < len(operands):
        matched = item.match(operands[i])
        if matched is None:
          return None
        values.update(matched)
      elif item.optional:
        values.update(item.absent())
      else:
        return None
    return values


_entries: dict[str, list[Entry]] = {}


def instruction(
    opcode: str, operands: str = "", *, section: str, aligned: bool = False
) -> Callable[[Callable[[Op], Execute]], Callable[[Op], Execute]]:
  """Adds an instruction to the table; see the module's docstring.

  Args:
    section: where the PTX ISA describes it.
    aligned: all 32 lanes of a warp must execute it together. Implied by
      `.aligned` in the opcode.
  """
  pattern, heads = _compile_opcode(opcode)
  items = _compile_operands(operands)
  names = list(pattern.groupindex)
  for item in items:
    names += filter(None, (item.name, item.second))
  if len(set(names)) != len(names):
    raise ValueError(f"{opcode!r} {operands!r}: a name stands twice.")

  def register(decode: Callable[[Op], Execute]) -> Callable[[Op], Execute]:
    entry = Entry(opcode, operands, section, aligned, decode, pattern, items)
    for head in heads:
      # Stacked decorators run from the bottom up; read them from the top.
      _entries.setdefault(head, []).insert(0, entry)
    return decode

  return register


@functools.cache
def load() -> None:
  """Imports every module of the ISA, which fills the table."""
  isa = importlib.import_module(".isa", __package__)
  for module in pkgutil.iter_modules(isa.__path__):
    importlib.import_module(f".isa.{module.name}", __package__)


def lookup(ins: ptx.Instruction) -> tuple[Entry, dict[str, Any]]:
  """Finds the entry of an instruction and its fields and (parsed) operands."""
  load()
  entries = _entries.get(ins.opcode.partition(".")[0])
  if not entries:
    raise unsupported(ins, "no instruction of this name is in the table.")
  fitting = []
  for entry in entries:
    found = entry.regex.fullmatch(ins.opcode)
    if found is None:
      continue
    operands = entry.match_operands(ins.operands)
    if operands is not None:
      return entry, {**found.groupdict(), **operands}
    fitting.append(entry)
  if fitting:
    forms = " or ".join(sorted({f"`{e.operands}`" for e in fitting}))
    raise unsupported(ins, f"expected operands {forms}.")
  forms = ", ".join(sorted({f"`{e.opcode}`" for e in entries}))
  raise unsupported(ins, f"expected a form of {forms}.")


def unmodelled(module: ptx.Module) -> list[tuple[int, str, str]]:
  """Line, text and reason of every instruction that is not in the table."""
  result = []
  for kernel in module.entries.values():
    for ins in kernel.body:
      try:
        lookup(ins)
      except errors.UnsupportedPtxError as e:
        result.append((ins.line, ins.text, e.message))
  return result


_FIELD = re.compile(r"<(\w+)(?::([^<>]*))?>")


def _compile_opcode(template: str) -> tuple[re.Pattern[str], list[str]]:
  """Returns the regex of a template and the first words it can begin with."""
  parts, last = [], 0
  for found in _FIELD.finditer(template):
    parts.append(_literal(template[last : found.start()]))
    name, choices = found[1], (found[2] or found[1]).split("|")
    alternatives = "|".join(re.escape(c) for c in choices)
    parts.append(f"(?P<{name}>{alternatives})")
    last = found.end()
  parts.append(_literal(template[last:]))
  regex = "".join(parts)
  if regex.count("(?:") != regex.count(")?"):
    raise ValueError(f"{template!r}: unbalanced brackets.")
  first = _FIELD.match(template)
  if first:
    heads = (first[2] or first[1]).split("|")
  else:
    word = re.match(r"\w+", template)
    assert word is not None, template
    heads = [word[0]]
  return re.compile(regex), [h.partition(".")[0] for h in heads]


def _literal(text: str) -> str:
  special = {"[": "(?:", "]": ")?"}
  return "".join(special.get(c) or re.escape(c) for c in text)


_ITEMS = (
    ("pair", re.compile(r"(?P<name>\w+)(?P<o>\[)?\|(?P<second>\w+)\]?")),
    ("address_vector",
     re.compile(r"\[(?P<name>\w+),\s*\{(?P<second>\w+)\}\]")),
    ("address", re.compile(r"\[(?P<name>\w+)\]")),
    ("arguments", re.compile(r"\((?P<name>\w+)\)")),
    ("vector", re.compile(r"\{(?P<name>\w+)\}")),
    ("negatable", re.compile(r"!(?P<name>\w+)")),
    ("plain", re.compile(r"(?P<name>\w+)")),
)


def _compile_operands(template: str) -> tuple[_Operand, ...]:
  if not template:
    return ()
  result = []
  for text in re.split(r",\s*(?![^\[\]]*\])", template):
    text, optional = text.removesuffix("?"), text.endswith("?")
    for kind, pattern in _ITEMS:
      found = pattern.fullmatch(text)
      if found:
        break
    else:
      raise ValueError(f"{template!r}: cannot read operand {text!r}.")
    groups = found.groupdict()
    result.append(
        _Operand(
            kind, groups["name"], groups.get("second", ""),
            groups.get("o") is not None, optional,
        )
    )
  return tuple(result)
