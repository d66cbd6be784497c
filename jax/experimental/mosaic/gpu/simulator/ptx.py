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
"""Parser of PTX as LLVM and Mosaic GPU's inline assembly write it.

PTX ISA chapters 4 (syntax), 5 (state spaces) and 11 (directives). The parser
knows no instructions: it gives every one as opcode, guard and operands.
"""

from __future__ import annotations

import dataclasses
import re
import struct
from typing import NoReturn, TypeAlias

from . import errors


@dataclasses.dataclass(frozen=True)
class Register:
  name: str  # Unique in its kernel.


@dataclasses.dataclass(frozen=True)
class Special:
  """A special register, e.g. `%tid.x`."""

  name: str


@dataclasses.dataclass(frozen=True)
class Immediate:
  value: int | float
  bits: int | None = None  # Width of a floating-point constant.


@dataclasses.dataclass(frozen=True)
class Symbol:
  """A variable or parameter: its address."""

  name: str
  offset: int = 0


@dataclasses.dataclass(frozen=True)
class Label:
  name: str
  target: int  # Index into Kernel.body.


@dataclasses.dataclass(frozen=True)
class Address:
  """`[base + offset]`, offset in bytes."""

  base: Register | Symbol | Immediate
  offset: int = 0


@dataclasses.dataclass(frozen=True)
class Vector:
  items: tuple[Operand, ...]


@dataclasses.dataclass(frozen=True)
class Pair:
  """`d|p`."""

  first: Operand
  second: Operand


@dataclasses.dataclass(frozen=True)
class Sink:
  """`_`."""


@dataclasses.dataclass(frozen=True)
class Negated:
  """`!p`."""

  operand: Register


@dataclasses.dataclass(frozen=True)
class AddressWithVector:
  """`[base, {a, b, ...}]`, the form of TMA coordinates."""

  base: Address
  vector: Vector


@dataclasses.dataclass(frozen=True)
class Function:
  """What a call calls."""

  name: str


@dataclasses.dataclass(frozen=True)
class Arguments:
  """`(a, b, ...)` of a call; an Address stands for a `.param` variable."""

  items: tuple[Register | Immediate | Address | Sink, ...]


Operand: TypeAlias = (
    Register | Special | Immediate | Symbol | Label | Address | Vector | Pair
    | Sink | Negated | AddressWithVector | Function | Arguments
)


@dataclasses.dataclass(frozen=True)
class Instruction:
  opcode: str  # With all modifiers.
  guard: tuple[Register, bool] | None  # Predicate, negated.
  operands: tuple[Operand, ...]
  line: int
  text: str


@dataclasses.dataclass(frozen=True)
class Param:
  """A kernel parameter: `offset` and `size` in bytes."""

  name: str
  type: str
  align: int
  size: int
  offset: int


@dataclasses.dataclass(frozen=True)
class Variable:
  """A variable in a state space; size and align in bytes.

  Attributes:
    dynamic: shared memory whose size the launch gives.
    data: initial contents, for .global and .const.
  """

  name: str
  space: str
  align: int
  size: int
  dynamic: bool = False
  data: bytes | None = None


@dataclasses.dataclass
class Kernel:
  """An entry function.

  Attributes:
    variables: .shared, .local, .global and .const variables it may name, and,
      by unique name, the .param variables of its calls.
    registers: type of each register, by its unique name.
    labels: index into `body`, by unique name.
  """

  name: str
  params: tuple[Param, ...]
  maxntid: tuple[int, ...] | None = None
  reqntid: tuple[int, ...] | None = None
  reqnctapercluster: tuple[int, ...] | None = None
  explicit_cluster: bool = False
  variables: dict[str, Variable] = dataclasses.field(default_factory=dict)
  registers: dict[str, str] = dataclasses.field(default_factory=dict)
  body: list[Instruction] = dataclasses.field(default_factory=list)
  labels: dict[str, int] = dataclasses.field(default_factory=dict)

  @property
  def shared(self) -> dict[str, Variable]:
    return {n: v for n, v in self.variables.items() if v.space == "shared"}


@dataclasses.dataclass
class Module:
  version: str
  target: str
  address_size: int
  entries: dict[str, Kernel]


def parse(text: str, *, targets: tuple[str, ...] = ("sm_100a",)) -> Module:
  """Parses a PTX module compiled for one of `targets`."""
  return _Parser(text, targets).module()


_TOKEN = re.compile(
    r"""
    (?P<skip>\s+|//[^\n]*|/\*.*?\*/)
  | (?P<string>"(?:[^"\\\n]|\\.)*")
  | (?P<number>0[fF][0-9a-fA-F]{8}\b|0[dD][0-9a-fA-F]{16}\b
      |0[xX][0-9a-fA-F]+U?\b|0[bB][01]+U?\b
      |\d+\.\d*(?:[eE][-+]?\d+)?\b|\d+[eE][-+]?\d+\b|\d+U?\b)
  | (?P<word>[%$_A-Za-z.](?:[\w$.]|::)*)
  | (?P<mark>[][{}()<>,;:=@!|+-])
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclasses.dataclass(slots=True)
class _Token:
  kind: str  # string, number, word, mark, end
  text: str
  line: int
  start: int
  end: int


def _tokens(text: str) -> list[_Token]:
  result = []
  line, position = 1, 0
  while position < len(text):
    found = _TOKEN.match(text, position)
    if found is None:
      rest = text[position:].partition("\n")[0]
      raise errors.PtxSyntaxError(
          f"Unexpected text {rest[:40]!r}.", errors.Where(line, rest)
      )
    kind = found.lastgroup
    assert kind is not None  # Each alternative is a group.
    if kind != "skip":
      result.append(_Token(kind, found[0], line, position, found.end()))
    line += found[0].count("\n")
    position = found.end()
  result.append(_Token("end", "", line, position, position))
  return result


class _Scope:
  """What a pair of braces declares: source name -> unique name."""

  def __init__(self, parent: _Scope | None, number: int):
    self.parent = parent
    self.number = number
    self.registers: dict[str, str] = {}
    # Ranges such as `%r<190>`: prefix -> (count, type).
    self.ranges: dict[str, tuple[int, str]] = {}
    self.labels: dict[str, str] = {}
    self.params: dict[str, str] = {}  # Arguments and results of calls.

  def unique(self, name: str) -> str:
    return f"{name}@{self.number}" if self.number else name


_TYPE_BYTES = {
    "pred": 1, "b128": 16, "f16x2": 4, "bf16": 2, "bf16x2": 4,
    **{f"{k}{n}": n // 8 for k in "bsuf" for n in (8, 16, 32, 64)},
}
_REGISTER_RANGE = re.compile(r"(.*?)(\d+)")
_LINKAGE = {".visible", ".weak", ".extern", ".common"}
_SPACES = {".shared", ".local", ".global", ".const"}
_BRANCHES = {"bra", "brx"}


def _constant_bytes(constant: Immediate, nbytes: int) -> bytes:
  value = constant.value
  if constant.bits:
    return struct.pack({32: "<f", 64: "<d"}[constant.bits], value)
  assert isinstance(value, int)  # Floating-point ones have bits.
  return (value & ((1 << (8 * nbytes)) - 1)).to_bytes(nbytes, "little")


class _Parser:
  kernel: Kernel  # The one being read.
  scope: _Scope  # The innermost braces.

  def __init__(self, text: str, targets: tuple[str, ...]):
    self.text = text
    self.targets = targets
    self.tokens = _tokens(text)
    self.position = 0
    self.variables: dict[str, Variable] = {}
    self.num_scopes = 0
    self.param_names: set[str] = set()

  # Tokens.

  @property
  def token(self) -> _Token:
    return self.tokens[self.position]

  def is_last(self, token: _Token) -> bool:
    """Whether the text ends here; its last word may only be a part of one."""
    return "end" in (token.kind, self.token.kind) or token is self.tokens[-2]

  def fail(self, message: str, token: _Token | None = None) -> NoReturn:
    token = token or self.token
    if self.is_last(token):
      message = f"The PTX text is truncated: {message}"
    lines = self.text.splitlines()
    text = lines[token.line - 1] if token.line <= len(lines) else ""
    raise errors.PtxSyntaxError(message, errors.Where(token.line, text.strip()))

  def refuse(self, message: str, token: _Token | None = None) -> NoReturn:
    token = token or self.token
    if self.is_last(token):
      self.fail(message, token)
    text = self.text.splitlines()[token.line - 1].strip()
    raise errors.UnsupportedPtxError(message, errors.Where(token.line, text))

  def next(self) -> _Token:
    token = self.token
    if token.kind == "end":
      self.fail("unexpected end of the text.")
    self.position += 1
    return token

  def take(self, text: str) -> bool:
    """Consumes the token if it reads `text`."""
    if self.token.text == text and self.token.kind in ("mark", "word"):
      self.position += 1
      return True
    return False

  def expect(self, text: str) -> _Token:
    if self.token.text != text:
      self.fail(f"expected {text!r}, got {self.token.text!r}.")
    return self.next()

  def word(self) -> str:
    if self.token.kind != "word":
      self.fail(f"expected a name, got {self.token.text!r}.")
    return self.next().text

  def integer(self) -> int:
    negative = self.take("-")
    while self.take("+"):
      pass
    negative ^= self.take("-")
    token = self.token
    value = self.number()
    if not isinstance(value.value, int):
      self.fail(f"expected an integer, got {token.text!r}.", token)
    return -value.value if negative else value.value

  def number(self) -> Immediate:
    if self.token.kind != "number":
      self.fail(f"expected a number, got {self.token.text!r}.")
    text = self.next().text
    prefix = text[:2].lower()
    if prefix == "0f":
      return Immediate(struct.unpack(">f", bytes.fromhex(text[2:]))[0], 32)
    if prefix == "0d":
      return Immediate(struct.unpack(">d", bytes.fromhex(text[2:]))[0], 64)
    if prefix != "0x" and re.search(r"[.eE]", text):
      return Immediate(float(text), 64)
    text = text.removesuffix("U")
    if prefix in ("0x", "0b"):
      return Immediate(int(text, 0))
    octal = len(text) > 1 and text[0] == "0"
    return Immediate(int(text, 8 if octal else 10))

  def integers(self) -> tuple[int, ...]:
    values = [self.integer()]
    while self.take(","):
      values.append(self.integer())
    return tuple(values)

  def skip_line(self) -> None:
    line = self.token.line
    while self.token.line == line and self.token.kind != "end":
      self.position += 1

  def skip_braces(self) -> None:
    self.expect("{")
    depth = 1
    while depth:
      depth += {"{": 1, "}": -1}.get(self.next().text, 0)

  # Module level.

  def module(self) -> Module:
    header: dict[str, str] = {}
    entries: dict[str, Kernel] = {}
    while self.token.kind != "end":
      start = self.token
      directive = self.word()
      linkage = set()
      while directive in _LINKAGE:
        linkage.add(directive)
        directive = self.word()
      match directive:
        case ".version":
          header["version"] = self.next().text
        case ".target":
          target = header["target"] = self.word()
          if target not in self.targets:
            self.refuse(
                f"PTX for {target}; expected {' or '.join(self.targets)}."
                " Compile the kernel for that target.",
                start,
            )
          while self.take(","):
            self.word()
        case ".address_size":
          if self.integer() != 64:
            self.refuse("Expected .address_size 64.", start)
        case ".file" | ".loc":
          self.skip_line()
        case ".section":
          self.word()
          self.skip_braces()
        case ".pragma":
          while self.next().text != ";":
            pass
        case ".entry":
          if "target" not in header:
            self.fail("expected .version and .target before .entry.", start)
          kernel = self.entry()
          entries[kernel.name] = kernel
        case ".func":
          # A declaration does no harm; the table knows what can be called.
          while self.token.text not in (";", "{"):
            self.next()
          if not self.take(";"):
            self.refuse("Functions other than entries.", start)
        case _ if directive in _SPACES:
          self.variable(directive, ".extern" in linkage, self.variables)
        case _:
          self.refuse(f"Unknown directive or statement {directive!r}.", start)
    if not entries:
      self.fail("no .entry in it.")
    return Module(header["version"], header["target"], 64, entries)

  def variable(
      self, space: str, extern: bool, into: dict[str, Variable]
  ) -> None:
    """Reads a declaration up to its semicolon."""
    align, type_ = self.type_and_align()
    while True:
      name = self.word()
      element = _TYPE_BYTES[type_]
      size, is_array = element, False
      while self.take("["):
        # `x[]` of an extern variable has no size.
        length = 0 if self.token.text == "]" else self.integer()
        self.expect("]")
        size, is_array = size * length, True
      data = None
      if self.take("="):
        data = self.initializer(element, size)
      # LLVM writes a zero-length array as a scalar of type .b8.
      dynamic = space == ".shared" and (
          extern or (is_array and size == 0)
          or name.startswith("__dynamic_shmem__")
      )
      into[name] = Variable(
          name, space[1:], align or element, 0 if dynamic else size, dynamic,
          data,
      )
      if not self.take(","):
        break
    self.expect(";")

  def initializer(self, element: int, size: int) -> bytes:
    values = []
    if self.take("{"):
      while not self.take("}"):
        if self.token.kind == "word":
          self.refuse("An initializer with an address in it.")
        values.append(self.constant())
        self.take(",")
    else:
      values.append(self.constant())
    data = b"".join(_constant_bytes(v, element) for v in values)
    return data.ljust(size, b"\0")

  def constant(self) -> Immediate:
    negative = self.take("-")
    value = self.number()
    return dataclasses.replace(value, value=-value.value) if negative else value

  def type_and_align(self) -> tuple[int, str]:
    """Reads `.align 16 .b8` and alike; align is 0 if not given."""
    align = 0
    while True:
      token = self.token
      word = self.word()
      if word == ".align":
        align = self.integer()
      elif word[1:] in _TYPE_BYTES:
        return align, word[1:]
      elif word in (".ptr", ".attribute"):
        pass
      else:
        self.refuse(f"Unknown type {word!r}.", token)

  def entry(self) -> Kernel:
    name = self.word()
    params, offset = [], 0
    if self.take("("):
      while not self.take(")"):
        self.expect(".param")
        align, type_ = self.type_and_align()
        align = align or _TYPE_BYTES[type_]
        while self.token.text in (".ptr", ".align", ".global", ".shared"):
          # What a pointer points to; of no effect on the parameter itself.
          if self.word() == ".align":
            self.integer()
        param = self.word()
        size = _TYPE_BYTES[type_]
        if self.take("["):
          size *= self.integer()
          self.expect("]")
        offset = -(-offset // align) * align
        params.append(Param(param, type_, align, size, offset))
        offset += size
        self.take(",")
    kernel = self.kernel = Kernel(name, tuple(params))
    self.param_names = {p.name for p in params}
    while not self.take("{"):
      token = self.token
      directive = self.word()
      match directive:
        case ".maxntid":
          kernel.maxntid = self.integers()
        case ".reqntid":
          kernel.reqntid = self.integers()
        case ".reqnctapercluster":
          kernel.reqnctapercluster = self.integers()
        case ".explicitcluster":
          kernel.explicit_cluster = True
        case ".minnctapersm" | ".maxnreg" | ".maxclusterrank":
          self.integers()  # Limits for ptxas.
        case ".noreturn" | ".blocksareclusters":
          if directive == ".blocksareclusters":
            self.refuse("Directive .blocksareclusters.", token)
        case ".pragma":
          while self.next().text != ";":
            pass
        case _:
          self.refuse(f"Unknown directive {directive!r} of an entry.", token)
    kernel.variables = dict(self.variables)
    self.body(kernel)
    return kernel

  # Statements.

  def body(self, kernel: Kernel) -> None:
    self.num_scopes = 0
    self.scope = _Scope(None, 0)
    # Branches wait for the end, when all labels are known.
    branches: list[tuple[int, str, _Scope, _Token]] = []
    while True:
      token = self.token
      if self.take("}"):
        if self.scope.parent is None:
          break
        self.scope = self.scope.parent
      elif self.take("{"):
        self.num_scopes += 1
        self.scope = _Scope(self.scope, self.num_scopes)
      elif self.take(";"):
        pass
      elif token.text == ".reg":
        self.next()
        self.declare_registers(kernel)
      elif token.text == ".loc":
        self.skip_line()
      elif token.text == ".pragma":
        while self.next().text != ";":
          pass
      elif token.text in _SPACES or token.text in _LINKAGE:
        extern = False
        while self.token.text in _LINKAGE:
          extern |= self.next().text == ".extern"
        self.variable(self.word(), extern, kernel.variables)
      elif self.take(".param"):
        self.declare_params(kernel)
      elif token.text.startswith(".") and token.kind == "word":
        self.refuse(f"Unknown directive {token.text!r} in a kernel.", token)
      elif token.kind == "word" and self.tokens[self.position + 1].text == ":":
        if token.text in self.scope.labels:
          self.fail(f"label {token.text!r} is defined twice.", token)
        name = self.scope.unique(token.text)
        self.scope.labels[token.text] = name
        kernel.labels[name] = len(kernel.body)
        self.position += 2
      elif token.kind == "word" or token.text == "@":
        self.instruction(kernel, branches)
      else:
        self.fail(f"expected a statement, got {token.text!r}.", token)
    for index, label, scope, token in branches:
      where: _Scope | None = scope
      while where is not None and label not in where.labels:
        where = where.parent
      if where is None:
        self.fail(f"branch to the unknown label {label!r}.", token)
      name = where.labels[label]
      kernel.body[index] = dataclasses.replace(
          kernel.body[index], operands=(Label(name, kernel.labels[name]),)
      )

  def declare_registers(self, kernel: Kernel) -> None:
    token = self.token
    type_ = self.word()[1:]
    if type_ not in _TYPE_BYTES:
      self.refuse(f"Unknown register type .{type_}.", token)
    while True:
      name = self.word()
      if self.take("<"):
        self.scope.ranges[name] = (self.integer(), type_)
        self.expect(">")
      else:
        unique = self.scope.unique(name)
        self.scope.registers[name] = unique
        kernel.registers[unique] = type_
      if not self.take(","):
        break
    self.expect(";")

  def declare_params(self, kernel: Kernel) -> None:
    variables: dict[str, Variable] = {}
    self.variable(".param", False, variables)
    for name, variable in variables.items():
      # Other than the names of parameters and variables, also in scope 0.
      unique = f"{name}@{self.scope.number}"
      self.scope.params[name] = unique
      kernel.variables[unique] = dataclasses.replace(variable, name=unique)

  def find_param(self, name: str) -> str | None:
    scope: _Scope | None = self.scope
    while scope is not None:
      if name in scope.params:
        return scope.params[name]
      scope = scope.parent
    return None

  def find_register(self, name: str) -> Register | None:
    scope: _Scope | None = self.scope
    while scope is not None:
      unique = scope.registers.get(name)
      if unique is not None:
        return Register(unique)
      found = _REGISTER_RANGE.fullmatch(name) if scope.ranges else None
      if found and found[1] in scope.ranges:
        count, type_ = scope.ranges[found[1]]
        if int(found[2]) < count:
          unique = scope.unique(name)
          scope.registers[name] = unique
          self.kernel.registers[unique] = type_
          return Register(unique)
      scope = scope.parent
    return None

  def instruction(self, kernel: Kernel, branches: list) -> None:
    start = self.token
    guard = None
    if self.take("@"):
      negated = self.take("!")
      token = self.token
      register = self.find_register(self.word())
      if register is None:
        self.fail(f"undeclared predicate {token.text!r}.", token)
      guard = (register, negated)
    opcode = self.word()
    operands: list[Operand] = []
    if opcode.partition(".")[0] in _BRANCHES:
      token = self.token
      branches.append((len(kernel.body), self.word(), self.scope, token))
    elif opcode.partition(".")[0] == "call":
      operands = self.call_operands()
    elif self.token.text != ";":
      operands.append(self.operand())
      while self.take(","):
        operands.append(self.operand())
    end = self.expect(";")
    kernel.body.append(
        Instruction(
            opcode, guard, tuple(operands), start.line,
            self.text[start.start : end.end],
        )
    )

  def call_operands(self) -> list[Operand]:
    """Reads `(d), f, (a, b)`; result and arguments may be missing."""
    operands: list[Operand] = []
    while True:
      if self.take("("):
        items = []
        while not self.take(")"):
          token = self.token
          item = self.simple_operand()
          if isinstance(item, Symbol):
            item = Address(item)
          if not isinstance(item, Register | Immediate | Address | Sink):
            self.fail(
                "expected a register, constant or .param variable in '( )'.",
                token,
            )
          items.append(item)
          if self.token.text != ")":
            self.expect(",")
        operands.append(Arguments(tuple(items)))
      else:
        operands.append(Function(self.word()))
      if not self.take(","):
        return operands

  def operand(self) -> Operand:
    first = self.simple_operand()
    if self.take("|"):
      return Pair(first, self.simple_operand())
    return first

  def simple_operand(self) -> Operand:
    token = self.token
    if self.take("["):
      return self.address()
    if self.take("{"):
      items = []
      while not self.take("}"):
        items.append(self.simple_operand())
        self.take(",")
      return Vector(tuple(items))
    if self.take("!"):
      register = self.simple_operand()
      if not isinstance(register, Register):
        self.fail("expected a predicate register after '!'.", token)
      return Negated(register)
    if self.take("-"):
      value = self.number()
      return dataclasses.replace(value, value=-value.value)
    if token.kind == "number":
      return self.number()
    name = self.word()
    if name == "_":
      return Sink()
    register = self.find_register(name)
    if register is not None:
      return register
    if name == "WARP_SZ":
      return Immediate(32)
    if name.startswith("%"):
      return Special(name)
    param = self.find_param(name)
    if param is not None:
      return Symbol(param, self.offset())
    if name in self.param_names or name in self.kernel.variables:
      return Symbol(name, self.offset())
    self.fail(f"undeclared name {name!r}.", token)

  def offset(self) -> int:
    """Reads an optional `+4`, `-4` or `+-4`."""
    if self.token.text in ("+", "-"):
      self.take("+")
      return self.integer()
    return 0

  def address(self) -> Address | AddressWithVector:
    token = self.token
    base = self.simple_operand()
    if not isinstance(base, Register | Symbol | Immediate):
      self.fail("expected a register, symbol or number in '[ ]'.", token)
    address = Address(base, self.offset())
    if self.take(","):
      vector = self.simple_operand()
      if not isinstance(vector, Vector):
        self.fail("expected '{...}' in '[address, {...}]'.", token)
      self.expect("]")
      return AddressWithVector(address, vector)
    self.expect("]")
    return address
