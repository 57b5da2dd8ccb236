# SPDX-License-Identifier: Apache-2.0
"""The contract's service for a driver: GetInfo, Configure, Translate, Drain. It decides nothing: what the driver says goes on."""

import json
import logging
import queue
import threading
import traceback
from concurrent import futures

import grpc

from . import contract
from . import log as lines
from .language import Needs, Refused, Unanswered

SERVICE = "raven.v1.DriverService"
MAX_MESSAGE = 64 << 20
MAX_RESULT = 8 << 20  # Raven refuses a longer one
MAX_BATCH = 1 << 20  # a message grows no further: large ones would hold up the small
log = logging.getLogger("raven_driver")


class Service:
    """Serves one driver. Translations run on a few threads; results go back as they come."""

    def __init__(self, driver, workers=4):
        self.driver = driver
        self.pool = futures.ThreadPoolExecutor(workers, "translate")
        self.state = threading.Condition()
        self.in_flight = 0
        self.draining = False

    def handler(self):
        """The handlers for a gRPC server."""
        unary = grpc.unary_unary_rpc_method_handler
        return grpc.method_handlers_generic_handler(SERVICE, {
            "GetInfo": unary(self.get_info, contract.GetInfoRequest.FromString, contract.GetInfoResponse.SerializeToString),
            "Configure": unary(
                self.configure, contract.ConfigureRequest.FromString, contract.ConfigureResponse.SerializeToString),
            "Translate": grpc.stream_stream_rpc_method_handler(
                self.translate, contract.TranslateRequest.FromString, contract.TranslateResponse.SerializeToString),
            "Drain": unary(self.drain, contract.DrainRequest.FromString, contract.DrainResponse.SerializeToString),
        })

    def get_info(self, request, _context):
        if hasattr(self.driver, "core"):
            self.driver.core(list(request.capabilities))
        info = contract.GetInfoResponse()
        info.CopyFrom(self.driver.info())
        info.sdk = info.sdk or "raven-sdk-python/1"
        return info

    def configure(self, request, _context):
        response = contract.ConfigureResponse()
        try:
            response.watches.extend(self.driver.configure(values_of(request)))
        except Refused as refused:
            response.diagnostics.add(
                severity=contract.SEVERITY_ERROR, message=str(refused), group=refused.group, name=refused.name)
        except Exception as defect:  # pylint: disable=broad-except
            log.exception("driver raised", extra={"in": "configure"})
            response.diagnostics.add(severity=contract.SEVERITY_ERROR, message=f"configure raised {defect!r}")
        return response

    def drain(self, _request, context):
        with self.state:
            self.draining = True
            while self.in_flight and context.is_active():
                self.state.wait(0.1)
        return contract.DrainResponse()

    def translate(self, requests, context):
        """One stream: a reader takes items, the pool translates them, and this generator sends what is ready."""
        session = Session(self)
        context.add_callback(session.gone)
        threading.Thread(target=session.read, args=(requests,), daemon=True).start()
        yield from session.responses()

    def result(self, item):
        """The result of one item."""
        result = contract.TranslateResult(id=item.id)
        try:
            needs = Needs(answers_of(item))
            obj = json.loads(item.object.json)
            if not isinstance(obj, dict):
                raise ValueError("the object is none")
        except (ValueError, RecursionError) as bad:
            result.error.code, result.error.message = contract.ERROR_CODE_INVALID, f"reading the item: {bad}"
            return result
        with lines.about(item.object.watch, obj):
            try:
                wanted = self.driver.translate(obj, needs)
                result.set.CopyFrom(wanted if wanted is not None else contract.Set())
            except Unanswered:
                result.unanswered.SetInParent()
            except Exception as defect:  # pylint: disable=broad-except
                failed(result, defect)
        for watch, namespace, name, selector in needs.asked:
            result.needs.add(watch=watch, namespace=namespace, name=name, selector=selector)
        return result

    def enter(self):
        with self.state:
            if self.draining:
                return False
            self.in_flight += 1
            return True

    def leave(self):
        with self.state:
            self.in_flight -= 1
            self.state.notify_all()


class Session:
    """One Translate stream. Every item gets exactly one result, also when it was cancelled or ran out of time."""

    def __init__(self, service):
        self.service = service
        self.ready = queue.SimpleQueue()  # results, and None for the end
        self.lock = threading.Lock()
        self.open = set()  # ids without a result
        self.closed = False

    def read(self, requests):
        try:
            for request in requests:
                for identity in request.cancel:
                    self.settle(identity, contract.ERROR_CODE_CANCELLED, "the item was cancelled")
                for item in request.items:
                    self.take(item)
        except Exception:  # pylint: disable=broad-except
            pass  # the stream is over, which gone says too
        with self.lock:
            self.closed = True
            if not self.open:
                self.ready.put(None)

    def gone(self):
        """The core has closed the stream."""
        with self.lock:
            self.closed = True
            self.open.clear()
        self.ready.put(None)

    def take(self, item):
        with self.lock:
            self.open.add(item.id)
        if not self.service.enter():
            self.settle(item.id, contract.ERROR_CODE_CANCELLED, "the driver is draining")
            return
        self.service.pool.submit(self.work, item)

    def work(self, item):
        timer = None
        try:
            with self.lock:
                if item.id not in self.open:
                    return  # cancelled before its turn
            if item.timeout_ms:
                timer = threading.Timer(
                    item.timeout_ms / 1000, self.settle, (item.id, contract.ERROR_CODE_DEADLINE, "not done in time"))
                timer.daemon = True
                timer.start()
            self.deliver(self.service.result(item))
        finally:
            if timer:
                timer.cancel()
            self.service.leave()

    def settle(self, identity, code, message):
        """Answers an item that has no result yet."""
        result = contract.TranslateResult(id=identity)
        result.error.code, result.error.message = code, message
        self.deliver(result)

    def deliver(self, result):
        with self.lock:
            if result.id not in self.open:
                return
            self.open.discard(result.id)
            self.ready.put(result)
            if self.closed and not self.open:
                self.ready.put(None)

    def responses(self):
        while True:
            result = self.ready.get()
            response, size = contract.TranslateResponse(), 0
            while result is not None:
                length = result.ByteSize()
                if length > MAX_RESULT:
                    result = contract.TranslateResult(id=result.id)
                    result.error.code = contract.ERROR_CODE_TERMINAL
                    result.error.message = f"the Set is {length} bytes long, which is too much"
                if size and size + length > MAX_BATCH:
                    yield response
                    response, size = contract.TranslateResponse(), 0
                response.results.append(result)
                size += length
                try:
                    result = self.ready.get_nowait()
                except queue.Empty:
                    break
            if response.results:
                yield response
            if result is None:
                return


def failed(result, defect):
    """Tells an error that the driver means (a ValueError) from a defect of its code."""
    if isinstance(defect, ValueError):
        result.error.code, result.error.message = contract.ERROR_CODE_TERMINAL, str(defect)
        return
    log.error("driver raised", extra={"in": "translate", "error": repr(defect), "stack": traceback.format_exc()})
    result.error.code, result.error.message = contract.ERROR_CODE_PANIC, f"translate raised {defect!r}"


def values_of(request):
    """The options' values as {group: {name: value}}."""
    values = {}
    for option in request.values:
        kind = option.WhichOneof("value")
        value = getattr(option, kind)
        if kind == "list_value":
            value = list(value.values)
        elif kind == "dict_value":
            value = dict(value.values)
        values.setdefault(option.group, {})[option.name] = value
    return values


def answers_of(item):
    """The answers of earlier rounds by need. An answer without a state is a mistake, never an absence."""
    answers = {}
    for answer in item.answers:
        objects = [json.loads(one.json) for one in answer.objects]
        present = answer.state == contract.ANSWER_STATE_PRESENT
        if present == (not objects) or answer.state not in (contract.ANSWER_STATE_PRESENT, contract.ANSWER_STATE_ABSENT):
            raise ValueError(f"an answer has state {answer.state} and {len(objects)} objects")
        need = answer.need
        answers[need.watch, need.namespace, need.name, need.selector] = objects
    return answers
