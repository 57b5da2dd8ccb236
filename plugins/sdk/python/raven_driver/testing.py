# SPDX-License-Identifier: Apache-2.0
"""Goldens for drivers: testdata/<case>/{in,config,needs}.yaml and want.json, by direct call and over gRPC, without a cluster or a cloud.

    class TestGoldens(raven_driver.testing.Goldens, unittest.TestCase):
        driver, folder = MyDriver, "testdata"

A case holds in.yaml (objects, as documents), config.yaml (options as {group: {name: value}}; the rest have their defaults) and needs.yaml
(objects that answer needs, as {watch: [object, ...]}). RAVEN_UPDATE=1 writes want.json: read it before you commit it. Objects are trimmed
to the fields of their watch, as Raven does it: a field that was not declared is missing in the test already.
"""

import copy
import json
import os
import re
import tempfile
from concurrent import futures

import grpc
import yaml
from google.protobuf import json_format

from . import contract
from .server import OPTIONS
from .service import SERVICE, Service, values_of

ALWAYS = ["apiVersion", "kind", "metadata.name", "metadata.namespace", "metadata.uid", "metadata.deletionTimestamp"]
ROUNDS = 3


class Goldens:
    """One test of all cases of a folder."""

    driver = None  # a class, or what makes a driver
    folder = "testdata"

    def test_goldens(self):
        cases = sorted(entry for entry in os.listdir(self.folder) if os.path.isdir(os.path.join(self.folder, entry)))
        self.assertTrue(cases, "there are no cases")
        for case in cases:
            with self.subTest(case=case):
                self.case(os.path.join(self.folder, case))

    def case(self, folder):
        direct = run(Direct(type(self).driver()), folder)
        with Remote(type(self).driver()) as remote:
            self.assertEqual(direct, run(remote, folder), "over gRPC it gives something else than by direct call")
        self.assertEqual(direct, run(Direct(type(self).driver()), folder), "the second time it gives something else")
        path = os.path.join(folder, "want.json")
        if os.environ.get("RAVEN_UPDATE"):
            with open(path, "w", encoding="utf-8") as out:
                json.dump(direct, out, indent=2, sort_keys=True)
                out.write("\n")
        with open(path, encoding="utf-8") as wanted:
            self.assertEqual(json.load(wanted), direct, f"{path}; RAVEN_UPDATE=1 writes it")


def run(driver, folder):
    """What a driver makes of a case."""
    info = driver.info()
    request = contract.ConfigureRequest()
    configured = documents(os.path.join(folder, "config.yaml"))
    fill(request, info, configured[0] if configured else {})
    response = driver.configure(request)
    refused = [d.message for d in response.diagnostics if d.severity in (contract.SEVERITY_ERROR, contract.SEVERITY_UNSPECIFIED)]
    if refused:
        return [{"refused": refused}]
    needs = (documents(os.path.join(folder, "needs.yaml")) or [{}])[0]
    watches = {watch.name: watch for watch in response.watches}
    found = []
    for obj in documents(os.path.join(folder, "in.yaml")):
        sources = [watch for watch in watches.values() if watch.source and shows(watch, obj)]
        if not sources:
            raise AssertionError(f"no source watch shows {obj.get('kind')} {obj.get('metadata')}")
        found.append(settle(driver, sources[0], watches, obj, needs))
    return found


def settle(driver, watch, watches, obj, objects):
    """Rounds until the needs are answered, as Raven does it."""
    item = contract.TranslateItem(id=1, object=contract.Object(watch=watch.name, json=encode(trim(obj, watch.fields))))
    for number in range(1, ROUNDS + 1):
        item.round = number
        result = driver.translate(item)
        if result.WhichOneof("outcome") != "unanswered":
            out = json_format.MessageToDict(result, preserving_proto_field_name=True)
            out.pop("id")
            return out
        del item.answers[:]
        for need in result.needs:
            answer = item.answers.add(need=need, state=contract.ANSWER_STATE_ABSENT)
            for one in met(watches[need.watch], need, objects.get(need.watch, [])):
                answer.state = contract.ANSWER_STATE_PRESENT
                answer.objects.add(watch=need.watch, json=encode(trim(one, watches[need.watch].fields)))
    raise AssertionError(f"the needs did not settle in {ROUNDS} rounds")


class Direct:
    """A driver by direct call."""

    def __init__(self, driver):
        self.service = Service(driver, 1)

    def info(self):
        return self.service.get_info(None, None)

    def configure(self, request):
        return self.service.configure(request, None)

    def translate(self, item):
        return self.service.result(item)


class Remote:
    """A driver over gRPC, on a socket of this process."""

    def __init__(self, driver):
        self.folder = tempfile.TemporaryDirectory()
        path = "unix:" + os.path.join(self.folder.name, "driver")
        self.server = grpc.server(futures.ThreadPoolExecutor(4), options=OPTIONS)
        self.server.add_generic_rpc_handlers((Service(driver, 1).handler(),))
        self.server.add_insecure_port(path)
        self.server.start()
        self.channel = grpc.insecure_channel(path, options=OPTIONS)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.channel.close()
        self.server.stop(0).wait()
        self.folder.cleanup()

    def call(self, name, request, response):
        method = self.channel.unary_unary(f"/{SERVICE}/{name}", type(request).SerializeToString, response.FromString)
        return method(request, timeout=10)

    def info(self):
        return self.call("GetInfo", contract.GetInfoRequest(), contract.GetInfoResponse)

    def configure(self, request):
        return self.call("Configure", request, contract.ConfigureResponse)

    def translate(self, item):
        method = self.channel.stream_stream(
            f"/{SERVICE}/Translate", contract.TranslateRequest.SerializeToString, contract.TranslateResponse.FromString)
        for response in method(iter([contract.TranslateRequest(items=[item])]), timeout=10):
            return response.results[0]
        raise AssertionError("the stream ended without a result")


def fill(request, info, given):
    """Values of all options: those that are given, else the defaults."""
    known = {(option.group, option.name) for option in info.options}
    for group, names in given.items():
        for name in names:
            if (group, name) not in known:
                raise AssertionError(f"config.yaml: [{group}] {name} is not an option of the driver")
    for option in info.options:
        value = given.get(option.group, {}).get(option.name)
        if value is None:
            if not option.HasField("default"):
                continue
            value = option.default
        out = request.values.add(group=option.group, name=option.name)
        if option.type in (contract.OPTION_TYPE_INTEGER, contract.OPTION_TYPE_PORT):
            out.integer_value = int(value)
        elif option.type == contract.OPTION_TYPE_FLOAT:
            out.float_value = float(value)
        elif option.type == contract.OPTION_TYPE_DURATION:
            out.float_value = seconds(value)
        elif option.type == contract.OPTION_TYPE_BOOLEAN:
            out.boolean_value = value if isinstance(value, bool) else value.lower() in ("true", "1", "yes", "on")
        elif option.type in (contract.OPTION_TYPE_LIST, contract.OPTION_TYPE_MULTI):
            parts = value if isinstance(value, list) else [part.strip() for part in value.split(",") if part.strip()]
            out.list_value.values.extend(parts)
            out.list_value.SetInParent()
        elif option.type == contract.OPTION_TYPE_DICT:
            pairs = value if isinstance(value, dict) else dict(part.split(":", 1) for part in value.split(",") if part)
            out.dict_value.SetInParent()
            out.dict_value.values.update(pairs)
        else:
            out.string_value = str(value)
    values_of(request)


def seconds(text):
    """A duration as kuryr.conf has it: a number of seconds, or numbers with units, as in 1h30m and 300ms."""
    units = {"h": 3600, "m": 60, "s": 1, "ms": 0.001}
    parts = re.findall(r"([0-9.]+)(ms|[hms])", str(text))
    return sum(float(number) * units[unit] for number, unit in parts) if parts else float(text)


def documents(path):
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as text:
        return [document for document in yaml.safe_load_all(text) if document]


def encode(obj):
    return json.dumps(obj, sort_keys=True, default=str).encode()


def shows(watch, obj):
    """Whether a cluster would show an object by a watch."""
    version = f"{watch.group}/{watch.version}" if watch.group else watch.version
    metadata = obj.get("metadata", {})
    return (
        (obj.get("apiVersion"), obj.get("kind")) == (version, watch.kind)
        and watch.namespace in ("", metadata.get("namespace", ""))
        and selected(watch.label_selector, metadata.get("labels") or {})
        and all(field_selected(part, obj) for part in watch.field_selector.split(",") if part)
    )


def met(watch, need, objects):
    """The objects that answer a need, in the order of namespace and name."""
    found = []
    for obj in objects:
        metadata = obj.get("metadata", {})
        namespace = metadata.get("namespace", "")
        if not shows(watch, obj):
            continue
        if need.name and (namespace, metadata.get("name")) == (need.namespace, need.name):
            found.append(obj)
        elif not need.name and need.namespace in ("", namespace) and selected(need.selector, metadata.get("labels") or {}):
            found.append(obj)
    return sorted(found, key=lambda obj: (obj["metadata"].get("namespace", ""), obj["metadata"]["name"]))


def selected(selector, labels):
    """Label selectors: a, !a, a=b, a==b, a!=b, a in (b,c), a notin (b,c)."""
    for part in re.findall(r"[^,()]+(?:\([^)]*\))?", selector):
        part = part.strip()
        of_set = re.fullmatch(r"(\S+)\s+(in|notin)\s*\(([^)]*)\)", part)
        equal = re.fullmatch(r"([^!=\s]+)\s*(!=|==|=)\s*(\S*)", part)
        if of_set:
            among = labels.get(of_set[1]) in [value.strip() for value in of_set[3].split(",")]
            good = among == (of_set[2] == "in")
        elif equal:
            good = (labels.get(equal[1]) == equal[3]) == (equal[2] != "!=")
        else:
            good = (part.lstrip("!").strip() in labels) != part.startswith("!")
        if not good:
            return False
    return True


def field_selected(part, obj):
    path, operator, want = re.fullmatch(r"([^!=]+)(!=|==|=)(.*)", part).groups()
    for key in split(path):
        obj = obj.get(key, "") if isinstance(obj, dict) else ""
    return (str(obj) == want) == (operator != "!=")


def split(path):
    """The keys of a dotted path; a key with dots stands in brackets and quotes."""
    return [quoted or plain for quoted, plain in re.findall(r"\['([^']*)'\]|([^.\[\]]+)", path)]


def trim(obj, fields):
    """A copy with the given fields and what every object keeps."""
    if not fields:
        whole = copy.deepcopy(obj)
        whole.get("metadata", {}).pop("managedFields", None)
        return whole
    tree = {}
    for path in list(ALWAYS) + list(fields):
        at = tree
        for key in split(path):
            at = at.setdefault(key, {})
        at[None] = True  # all below it
    return keep(tree, obj)


def keep(tree, value):
    if None in tree:
        return copy.deepcopy(value)
    if isinstance(value, list):
        return [keep(tree, one) for one in value]
    if not isinstance(value, dict):
        return None
    kept = {key: keep(below, value[key]) for key, below in tree.items() if key in value}
    return {key: one for key, one in kept.items() if one is not None or value[key] is None}
