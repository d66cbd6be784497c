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
"""Picks cases so that every possible pair of factor values occurs in one.

Written here rather than taken from a package, because the number of pairs that
no case can have, and why, is part of what the tests say. Deterministic.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator, Mapping, Sequence
import dataclasses
import itertools
from typing import Any

# A factor and a value.
_Level = tuple[str, Any]
_Pair = tuple[_Level, _Level]


@dataclasses.dataclass(frozen=True)
class Rule:
  """What must hold of a case.

  Attributes:
    reason: Why not, if it does not.
    factors: The factors that matter.
    holds: A function of their values.
  """

  reason: str
  factors: tuple[str, ...]
  holds: Callable[..., bool]


@dataclasses.dataclass(frozen=True)
class Cover:
  """The cases, and the pairs that are in none.

  Attributes:
    cases: The cases, each with a value for every factor.
    impossible: The pairs that no case can have, with the reason.
  """

  cases: list[dict[str, Any]]
  impossible: dict[_Pair, str]

  def reasons(self) -> collections.Counter[str]:
    return collections.Counter(self.impossible.values())


def pairs(factors: Mapping[str, Sequence[Any]]) -> Iterator[_Pair]:
  """All pairs of values of two factors."""
  for (f, f_values), (g, g_values) in itertools.combinations(
      factors.items(), 2
  ):
    for x, y in itertools.product(f_values, g_values):
      yield (f, x), (g, y)


def cover(
    factors: Mapping[str, Sequence[Any]], rules: Sequence[Rule]
) -> Cover:
  """Returns few cases in which all pairs of values occur that can.

  Args:
    factors: The values of each factor. Put those first that rules depend on.
    rules: What must hold of each case. The search is exact: a pair is only
      called impossible after all cases with it were ruled out. So it is fast
      only if most cases are ruled out by a rule of few factors.
  """
  missing = dict.fromkeys(pairs(factors))
  cases, impossible = [], {}
  while missing:
    pair = next(iter(missing))
    failures = collections.Counter()
    case = _complete(factors, rules, dict(pair), missing, failures)
    if case is None:
      [(impossible[pair], _)] = failures.most_common(1)
      del missing[pair]
      continue
    case = {f: case[f] for f in factors}
    cases.append(case)
    for covered in itertools.combinations(case.items(), 2):
      missing.pop(covered, None)
  return Cover(cases, impossible)


def _complete(factors, rules, case, missing, failures):
  """Returns a case with the given values and many missing pairs, or None."""
  for rule in rules:
    if all(f in case for f in rule.factors) and not _holds(rule, case):
      failures[rule.reason] += 1
      return None
  demand = collections.Counter(level for pair in missing for level in pair)
  return _extend(factors, rules, case, missing, demand, failures)


def _extend(factors, rules, case, missing, demand, failures):
  """As `_complete`, for values that break no rule."""
  factor = next((f for f in factors if f not in case), None)
  if factor is None:
    return case
  order = list(factors)

  def gain(value):
    return sum(
        ((f, x), (factor, value)) in missing
        if order.index(f) < order.index(factor)
        else ((factor, value), (f, x)) in missing
        for f, x in case.items()
    ), demand[factor, value]

  for value in sorted(factors[factor], key=gain, reverse=True):
    extended = case | {factor: value}
    broken = [
        rule
        for rule in rules
        if factor in rule.factors
        and all(f in extended for f in rule.factors)
        and not _holds(rule, extended)
    ]
    if broken:
      failures[broken[0].reason] += 1
      continue
    result = _extend(factors, rules, extended, missing, demand, failures)
    if result is not None:
      return result
  return None


def _holds(rule: Rule, case: Mapping[str, Any]) -> bool:
  return rule.holds(*(case[f] for f in rule.factors))
