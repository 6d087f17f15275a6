"""Filters: one small language that says which runs are meant, and one evaluator of it.

In:   text such as "status in ('failed', 'timed_out') and tenant = :tenant and created_at > ago('2h')", its
      parameters, and the time that `ago` counts from.
Out:  a Filter (a frozen value), or BadFilter; and whether a run matches it.
Knows nothing of stores. What turns a Filter into SQL must give the same answers as `matches`.

What a filter means, where it could be read in two ways:

- Two-valued: every condition is true or false, and `not` is exactly the opposite. `a != b` is `not a = b`,
  `not in`, `not like`, `not contains` and `is not null` likewise.
- Values have a type, and nothing is converted: text, numbers, truth values, times. A comparison across types is
  false, so `tier = '2'` is false for a tier of 2, `tier != '2'` is true, and `not tier < '2'` is true as well.
- A field's type is known, so a value of another type is refused: it is a mistake. Of an attribute only the
  value tells its type.
- A missing attribute is null, and so is a field without a value. `a = null` means `a is null`. `a in ('x', null)`
  means `a = 'x' or a is null`. Null is not less or greater than anything; to write so is refused.
- Numbers compare by their exact value, whole ones and fractions alike: 2 = 2.0. Whole numbers of more than 64 bits
  are first rounded to floating point, in filters and in attributes, and an attribute that is larger than any such
  number is as large as the largest one. There is no NaN and no infinity in a filter.
- Truth values are not numbers, and have no order.
- Text is ordered by code points. `like` heeds case; `%` is any text, `_` any one character, all else is itself:
  there is no character that escapes.
- Times are whole milliseconds; what is finer is cut off. A time without an offset is UTC, a date alone is its midnight.
  Only fields are times; an attribute with a date is text, and compares as text.
- `contains` is true of an attribute that is a list with that value in it. A list, or a dict, is not null and
  equals nothing.
- `true` and `false` are conditions, too: all runs, and none.
- A name that is no field is an attribute. `Status` and `workflow_id` are refused all the same: as attributes they
  would be missing, and `Status != 'failed'` would mean every run. `attributes.Status` means the attribute, and
  `attributes."order id"` one whose name is no word.
"""

from perdure.kernel.filters.analysis import (
    asks_for_activities,
    attributes_of,
    bounds_of,
    conjuncts,
    fields_of,
    is_about_closed,
    required_values,
)
from perdure.kernel.filters.evaluator import RunFields, matches
from perdure.kernel.filters.parser import parse
from perdure.kernel.filters.printer import to_text
from perdure.kernel.filters.syntax import EVERYTHING, Filter, all_of, any_of

__all__ = [
    "EVERYTHING",
    "Filter",
    "RunFields",
    "all_of",
    "any_of",
    "asks_for_activities",
    "attributes_of",
    "bounds_of",
    "conjuncts",
    "fields_of",
    "is_about_closed",
    "matches",
    "parse",
    "required_values",
    "to_text",
]
