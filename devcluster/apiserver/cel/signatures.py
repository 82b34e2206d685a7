# SPDX-License-Identifier: Apache-2.0
"""The signatures of functions that rules on custom resources can call.

The language's own, its libraries of strings, lists, sets and optional values, and those that Kubernetes adds. The
functions are in `library`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Final

from devcluster.apiserver.cel.types import Type, parse_type

_OPERATORS: Final = """
_==_ (A,A) bool
_!=_ (A,A) bool
!_ (bool) bool
-_ (int) int | (double) double
_+_ (int,int) int | (uint,uint) uint | (double,double) double | (string,string) string | (bytes,bytes) bytes
_+_ (list(A),list(A)) list(A) | (timestamp,duration) timestamp | (duration,timestamp) timestamp
_+_ (duration,duration) duration
_-_ (int,int) int | (uint,uint) uint | (double,double) double | (timestamp,timestamp) duration
_-_ (timestamp,duration) timestamp | (duration,duration) duration
_*_ (int,int) int | (uint,uint) uint | (double,double) double
_/_ (int,int) int | (uint,uint) uint | (double,double) double
_%_ (int,int) int | (uint,uint) uint
_?_:_ (bool,A,A) A
@in (A,list(A)) bool | (A,map(A,B)) bool
_[_] (list(A),int) A | (map(A,B),A) B
_[_] (optional_type(list(A)),int) optional_type(A) | (optional_type(map(A,B)),A) optional_type(B)
_[?_] (list(A),int) optional_type(A) | (map(A,B),A) optional_type(B)
_[?_] (optional_type(list(A)),int) optional_type(A) | (optional_type(map(A,B)),A) optional_type(B)
"""
_ORDERED: Final = ("bool", "string", "bytes", "timestamp", "duration", "int", "uint", "double")
_NUMBERS: Final = ("int", "uint", "double")
_LANGUAGE: Final = """
size (string) int | (bytes) int | (list(A)) int | (map(A,B)) int
size string.() int | bytes.() int | list(A).() int | map(A,B).() int
startsWith string.(string) bool
endsWith string.(string) bool
contains string.(string) bool
matches string.(string) bool | (string,string) bool
dyn (A) dyn
type (A) type(A)
bool (bool) bool | (string) bool
bytes (bytes) bytes | (string) bytes
double (double) double | (int) double | (uint) double | (string) double
duration (duration) duration | (string) duration | (int) duration
int (int) int | (uint) int | (double) int | (string) int | (timestamp) int | (duration) int
string (string) string | (bool) string | (bytes) string | (double) string | (duration) string | (int) string
string (timestamp) string | (uint) string | (net.IP) string | (net.CIDR) string
timestamp (timestamp) timestamp | (string) timestamp | (int) timestamp
uint (uint) uint | (int) uint | (double) uint | (string) uint
optional.none () optional_type(A)
optional.of (A) optional_type(A)
optional.ofNonZeroValue (A) optional_type(A)
optional.unwrap (list(optional_type(A))) list(A)
unwrapOpt list(optional_type(A)).() list(A)
hasValue optional_type(A).() bool
value optional_type(A).() A
or optional_type(A).(optional_type(A)) optional_type(A)
orValue optional_type(A).(A) A
first list(A).() optional_type(A)
last list(A).() optional_type(A)
"""
_STRINGS: Final = """
charAt string.(int) string
find string.(string) string
findAll string.(string) list(string) | string.(string,int) list(string)
format string.(list(dyn)) string
indexOf string.(string) int | string.(string,int) int | list(A).(A) int
lastIndexOf string.(string) int | string.(string,int) int | list(A).(A) int
join list(string).() string | list(string).(string) string
lowerAscii string.() string
upperAscii string.() string
replace string.(string,string) string | string.(string,string,int) string
split string.(string) list(string) | string.(string,int) list(string)
substring string.(int) string | string.(int,int) string
trim string.() string
strings.quote (string) string
"""
_LISTS: Final = """
distinct list(A).() list(A)
flatten list(list(A)).() list(A) | list(dyn).(int) list(dyn)
lists.range (int) list(int)
reverse list(A).() list(A)
slice list(A).(int,int) list(A)
sets.contains (list(A),list(A)) bool
sets.equivalent (list(A),list(A)) bool
sets.intersects (list(A),list(A)) bool
"""
_SUMMED: Final = ("int", "uint", "double", "duration")
_KUBERNETES: Final = """
ip (string) net.IP | net.CIDR.() net.IP
ip.isCanonical (string) bool
isIP (string) bool
family net.IP.() int
isUnspecified net.IP.() bool
isLoopback net.IP.() bool
isLinkLocalMulticast net.IP.() bool
isLinkLocalUnicast net.IP.() bool
isGlobalUnicast net.IP.() bool
cidr (string) net.CIDR
isCIDR (string) bool
containsIP net.CIDR.(string) bool | net.CIDR.(net.IP) bool
containsCIDR net.CIDR.(string) bool | net.CIDR.(net.CIDR) bool
masked net.CIDR.() net.CIDR
prefixLength net.CIDR.() int
url (string) kubernetes.URL
isURL (string) bool
getScheme kubernetes.URL.() string
getHost kubernetes.URL.() string
getHostname kubernetes.URL.() string
getPort kubernetes.URL.() string
getEscapedPath kubernetes.URL.() string
getQuery kubernetes.URL.() map(string,list(string))
quantity (string) kubernetes.Quantity
isQuantity (string) bool
sign kubernetes.Quantity.() int
isInteger kubernetes.Quantity.() bool
asInteger kubernetes.Quantity.() int
asApproximateFloat kubernetes.Quantity.() double
add kubernetes.Quantity.(kubernetes.Quantity) kubernetes.Quantity | kubernetes.Quantity.(int) kubernetes.Quantity
sub kubernetes.Quantity.(kubernetes.Quantity) kubernetes.Quantity | kubernetes.Quantity.(int) kubernetes.Quantity
semver (string) kubernetes.Semver | (string,bool) kubernetes.Semver
isSemver (string) bool | (string,bool) bool
major kubernetes.Semver.() int
minor kubernetes.Semver.() int
patch kubernetes.Semver.() int
isLessThan kubernetes.Quantity.(kubernetes.Quantity) bool | kubernetes.Semver.(kubernetes.Semver) bool
isGreaterThan kubernetes.Quantity.(kubernetes.Quantity) bool | kubernetes.Semver.(kubernetes.Semver) bool
compareTo kubernetes.Quantity.(kubernetes.Quantity) int | kubernetes.Semver.(kubernetes.Semver) int
format.named (string) optional_type(kubernetes.NamedFormat)
validate kubernetes.NamedFormat.(string) optional_type(list(string))
"""
_PATCHES: Final = """
jsonpatch.escapeKey (string) string
"""
PATCH_FUNCTIONS: Final = frozenset({"jsonpatch.escapeKey"})
"""The functions that only the expressions of patches can call."""
_AUTHORIZATION: Final = """
path kubernetes.authorization.Authorizer.(string) kubernetes.authorization.PathCheck
group kubernetes.authorization.Authorizer.(string) kubernetes.authorization.GroupCheck
serviceAccount kubernetes.authorization.Authorizer.(string,string) kubernetes.authorization.Authorizer
resource kubernetes.authorization.GroupCheck.(string) kubernetes.authorization.ResourceCheck
subresource kubernetes.authorization.ResourceCheck.(string) kubernetes.authorization.ResourceCheck
namespace kubernetes.authorization.ResourceCheck.(string) kubernetes.authorization.ResourceCheck
name kubernetes.authorization.ResourceCheck.(string) kubernetes.authorization.ResourceCheck
fieldSelector kubernetes.authorization.ResourceCheck.(string) kubernetes.authorization.ResourceCheck
labelSelector kubernetes.authorization.ResourceCheck.(string) kubernetes.authorization.ResourceCheck
check kubernetes.authorization.PathCheck.(string) kubernetes.authorization.Decision
check kubernetes.authorization.ResourceCheck.(string) kubernetes.authorization.Decision
allowed kubernetes.authorization.Decision.() bool
reason kubernetes.authorization.Decision.() string
errored kubernetes.authorization.Decision.() bool
error kubernetes.authorization.Decision.() string
"""
FORMATS: Final = (
    *("dns1123Label", "dns1123Subdomain", "dns1035Label", "dns1123LabelPrefix", "dns1123SubdomainPrefix"),
    *("dns1035LabelPrefix", "qualifiedName", "labelValue", "uri", "uuid", "byte", "date", "datetime"),
)
"""The names of the named formats."""
_MOMENTS: Final = ("getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear", "getFullYear", "getMonth")
_CLOCKS: Final = ("getHours", "getMinutes", "getSeconds", "getMilliseconds")


@dataclass(frozen=True, slots=True)
class Signature:
    """One overload of a function; the first parameter of a method is the receiver."""

    parameters: tuple[Type, ...]
    result: Type
    is_method: bool


@cache
def signatures() -> dict[str, tuple[Signature, ...]]:
    """The overloads of each function."""
    found: dict[str, tuple[Signature, ...]] = {}
    for line in "".join(_texts()).splitlines():
        name, _, forms = line.partition(" ")
        if name:
            found[name] = (*found.get(name, ()), *(_read(form) for form in forms.split(" | ")))
    return found


def _texts() -> list[str]:
    return [_OPERATORS, _LANGUAGE, _STRINGS, _LISTS, _KUBERNETES, _AUTHORIZATION, _PATCHES, *_made()]


def _made() -> list[str]:
    """The lines that differ only in a type."""
    lines = []
    for operator in ("<", "<=", ">", ">="):
        mixed = [(one, other) for one in _NUMBERS for other in _NUMBERS if one != other]
        pairs = [*((kind, kind) for kind in _ORDERED), *mixed]
        lines.append(f"_{operator}_ " + " | ".join(f"({one},{other}) bool" for one, other in pairs))
    lines += [f"{name} timestamp.() int | timestamp.(string) int" for name in _MOMENTS]
    lines += [f"{name} timestamp.() int | timestamp.(string) int | duration.() int" for name in _CLOCKS]
    for name in ("min", "max"):
        lines.append(f"{name} " + " | ".join(f"list({kind}).() {kind}" for kind in _ORDERED))
    lines.append("isSorted " + " | ".join(f"list({kind}).() bool" for kind in _ORDERED))
    lines.append("sort " + " | ".join(f"list({kind}).() list({kind})" for kind in _ORDERED))
    lines.append("sum " + " | ".join(f"list({kind}).() {kind}" for kind in _SUMMED))
    lines += [f"format.{name} () kubernetes.NamedFormat" for name in FORMATS]
    return [f"{line}\n" for line in lines]


def _read(form: str) -> Signature:
    taken, _, result = form.strip().rpartition(" ")
    receiver, dot, rest = taken.rpartition(".(")
    given = [receiver, *_split(rest[:-1])] if dot else _split(taken[1:-1])
    return Signature(tuple(map(parse_type, given)), parse_type(result), bool(dot))


def _split(text: str) -> list[str]:
    """The parts between commas outside of parentheses."""
    found, depth, start = [], 0, 0
    for at, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if char == "," and depth == 0:
            found.append(text[start:at])
            start = at + 1
    return [*found, text[start:]] if text else []
