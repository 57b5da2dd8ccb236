# SPDX-License-Identifier: Apache-2.0
"""Small makers of the messages that drivers use most, and what translate is given and may raise."""

import re

from . import contract


class Refused(Exception):
    """Raised by configure: the values are not good. The operator sees the message, with the option if it is named."""

    def __init__(self, message, group="", name=""):
        super().__init__(message)
        self.group, self.name = group, name


class Unanswered(Exception):
    """Raised by Needs.get when there is no answer yet. Let it pass: translate is called again with the answer."""


class Needs:
    """Needs answers what one call of translate asks for beside its object, and remembers what was asked."""

    def __init__(self, answers=None):
        self._answers = answers or {}
        self.asked = []

    def get(self, watch, namespace="", name="", selector=""):
        """Returns the object that has a name, or None where there is none. Without a name: the list of those that a label
        selector matches, in the order of namespace and name. Raises Unanswered when that is not known yet."""
        key = (watch, namespace, name, "" if name else selector)
        if key not in self.asked:
            self.asked.append(key)
        if key not in self._answers:
            raise Unanswered(f"{watch} {namespace}/{name or selector}")
        objects = self._answers[key]
        if name:
            return objects[0] if objects else None
        return objects


def text(literal):
    """The Value of a text."""
    return contract.Value(literal=literal)


def ref(name, attribute=""):
    """The Value of an attribute of another resource of the same Set; no attribute means its id."""
    return contract.Value(ref=contract.Ref(name=name, attribute=attribute))


def role(kind, namespace, name, role_name):
    """The contract name of a resource of another owner: the object whose driver exports it, and the name."""
    return contract.Role(kind=kind, namespace=namespace, name=name, role=role_name)


def from_role(target, attribute=""):
    """The Value of an attribute of another owner's resource."""
    return contract.Value(ref=contract.Ref(role=target, attribute=attribute))


def texts(*all_of_them):
    """A list of texts that is set, an empty one too. Leave the field out to leave it unmanaged."""
    return contract.StringList(values=all_of_them)


def values(*all_of_them):
    """A list of Values that is set, an empty one too."""
    return contract.ValueList(values=all_of_them)


def output(key, value=None, document=None, kind=contract.OUTPUT_KIND_ANNOTATION):
    """An annotation (or another kind of output): a text or an attribute, or the JSON document of the resource of that name."""
    if document is not None:
        return contract.Output(kind=kind, key=key, document=contract.Ref(name=document))
    if isinstance(value, str):
        value = text(value)
    return contract.Output(kind=kind, key=key, text=value)


def diagnostic(reason, message, severity=contract.SEVERITY_WARNING, resource=""):
    """A message for people about the source object: it becomes an Event there."""
    return contract.Diagnostic(severity=severity, reason=reason, message=message, resource=resource)


def name_of(obj):
    """The namespace and the name of an object, "" for the namespace of a cluster-scoped one."""
    return at(obj, "metadata.namespace", str, ""), at(obj, "metadata.name", str, "")


def at(obj, path, kind, default=None):
    """What stands at a dotted path of an object, the default where nothing does. A key with dots stands in brackets and quotes, as in
    "metadata.annotations['example.org/key']". Another kind of value than str, int, dict, list or bool, as asked for, is a ValueError:
    the people who look at the object see it, and what exists for the object stays."""
    value = obj
    for quoted, plain in re.findall(r"\['([^']*)'\]|([^.\[\]]+)", path):
        if value is None:
            return default
        if not isinstance(value, dict):
            raise ValueError(f"{path}: there is no way to it, for something above it is a {type(value).__name__}")
        value = value.get(quoted or plain)
    if value is None:
        return default
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"{path} is a {type(value).__name__}, not a {kind.__name__}")
    return value
