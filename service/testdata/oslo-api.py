#!/usr/bin/env python3
"""Prints the public names of oslo.service and oslo.config, one per line: what docs/oslo.md must have a row for.

Usage: oslo-api.py > oslo-api.txt
"""

import importlib
import inspect
import warnings

MODULES = [
    'oslo_service.service', 'oslo_service.loopingcall', 'oslo_service.periodic_task', 'oslo_service.threadgroup',
    'oslo_service.systemd', 'oslo_service.eventlet_backdoor', 'oslo_service.sslutils', 'oslo_service.wsgi',
    'oslo_service._options', 'oslo_config.cfg', 'oslo_config.types', 'oslo_config.iniparser', 'oslo_config.sources',
    'oslo_config.sources._environment', 'oslo_config.sources._uri', 'oslo_config.generator', 'oslo_config.validator',
]

# Tests of Python programs: a Go test gives its own clock and sources.
FIXTURES = ['oslo_service.fixture.SleepFixture', 'oslo_config.fixture.Config']
# They need Sphinx, which is not always there.
SPHINX = ['oslo_config.sphinxext', 'oslo_config.sphinxconfiggen']


def public(name):
    return not name.startswith('_')


def names(module):
    short = module.__name__.split('.')[-1].lstrip('_')
    if short == 'options':
        for key, value in vars(module).items():
            if public(key) and key.endswith('_opts'):
                for opt in value:
                    yield 'option ' + opt.name
        return
    for key, value in vars(module).items():
        if not public(key) or getattr(value, '__module__', None) != module.__name__:
            continue
        if inspect.isclass(value):
            yield '%s.%s' % (short, key)
            for method, member in vars(value).items():
                if public(method) and (callable(member) or isinstance(member, (property, staticmethod, classmethod))):
                    yield '%s.%s.%s' % (short, key, method)
        elif inspect.isfunction(value):
            yield '%s.%s' % (short, key)


def main():
    warnings.simplefilter('ignore')
    found = set(FIXTURES) | set(SPHINX)
    for name in MODULES:
        found.update(names(importlib.import_module(name)))
    print('\n'.join(sorted(found)))


if __name__ == '__main__':
    main()
