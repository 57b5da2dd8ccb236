#!/usr/bin/env python3
"""Puts the cases of cases.yaml to the real oslo.config and prints its answers as JSON.

It must never give an answer of its own: what oslo.config raises is written down as a refusal.

Usage: generate.py cases.yaml > golden.json
"""

import io
import json
import os
import sys
import tempfile
import types as pytypes

import yaml
from oslo_config import cfg
from oslo_config import generator
from oslo_config import types


def item_type(opt):
    kind = opt.get('item')
    if kind == 'integer':
        return types.Integer()
    if kind == 'port':
        return types.Port()
    return types.String(choices=opt.get('choices'))


def default_of(opt):
    """The default as a Python program would declare it."""
    text = opt.get('default', '' if opt.get('has_default') else None)
    kind = opt.get('type', 'string')
    if text is None or '$' in text:
        return text
    if kind == 'multi':
        return text.split('\n')
    if kind == 'list':
        return types.List()(text)
    if kind == 'dict':
        return types.Dict()(text)
    if kind == 'boolean':
        return types.Boolean()(text)
    if kind in ('integer', 'port'):
        return int(text)
    if kind == 'float':
        return float(text)
    return text


def choices_of(opt):
    helps = opt.get('choice_help', {})
    choices = opt.get('choices')
    if choices is None:
        return None
    number = int if opt.get('type') in ('integer', 'port') else str
    return [(number(c), helps.get(c)) for c in choices]


def option(opt):
    kind = opt.get('type', 'string')
    kw = dict(
        default=default_of(opt), help=opt.get('help'), secret=opt.get('secret', False),
        required=opt.get('required', False), mutable=opt.get('mutable', False),
        advanced=opt.get('advanced', False), sample_default=opt.get('sample_default'),
        deprecated_opts=[cfg.DeprecatedOpt(d['name'], group=d['group']) for d in opt.get('deprecated', [])],
        deprecated_for_removal=opt.get('deprecated_for_removal', False),
        deprecated_since=opt.get('deprecated_since'), deprecated_reason=opt.get('reason'))
    name = opt['name']
    if kind == 'string':
        return cfg.StrOpt(name, choices=choices_of(opt), regex=opt.get('pattern'),
                          ignore_case=opt.get('ignore_case', False), max_length=opt.get('max_length'), **kw)
    if kind == 'integer':
        return cfg.Opt(name, type=types.Integer(min=opt.get('min'), max=opt.get('max'), choices=choices_of(opt)), **kw)
    if kind == 'float':
        return cfg.FloatOpt(name, min=opt.get('min'), max=opt.get('max'), **kw)
    if kind == 'port':
        return cfg.PortOpt(name, min=opt.get('min'), max=opt.get('max'), **kw)
    if kind == 'list':
        return cfg.ListOpt(name, item_type=item_type(opt), **kw)
    if kind == 'dict':
        return cfg.Opt(name, type=types.Dict(value_type=item_type(opt)), **kw)
    if kind == 'uri':
        return cfg.URIOpt(name, schemes=opt.get('schemes'), max_length=opt.get('max_length'), **kw)
    if kind == 'ip':
        return cfg.IPOpt(name, version=opt.get('version'), **kw)
    if kind == 'host_address':
        return cfg.HostAddressOpt(name, version=opt.get('version'), **kw)
    return {'boolean': cfg.BoolOpt, 'multi': cfg.MultiStrOpt, 'hostname': cfg.HostnameOpt}[kind](name, **kw)


def flags(case):
    for name in case.get('read', sorted(case.get('files', {}))):
        yield '--config-dir' if name.endswith('/') else '--config-file'
        yield name.rstrip('/')


def answer(declared, case):
    """All values of one case by group.name, {"refused": true} for each that raises, or for the whole case."""
    for name, text in case.get('files', {}).items():
        if os.path.dirname(name):
            os.makedirs(os.path.dirname(name), exist_ok=True)
        with open(name, 'w', newline='') as f:
            f.write(text)
    cli = case.get('cli', {})
    conf = cfg.ConfigOpts()
    for opt in declared:
        key = opt.get('group', 'DEFAULT') + '.' + opt['name']
        conf.register_opt(option(opt), group=opt.get('group'), cli=key in cli)
    args = list(flags(case))
    for key, values in cli.items():
        group, name = key.rsplit('.', 1)
        for value in values:
            args += ['--%s%s' % ('' if group == 'DEFAULT' else group + '-', name), value]
    os.environ.update(case.get('env', {}))
    try:
        conf(args, project='kuryr', prog='raven', default_config_files=[], default_config_dirs=[])
    except (cfg.Error, SystemExit):
        return {'refused': True}
    finally:
        for name in case.get('env', {}):
            del os.environ[name]
    # The environment is asked at each look, so that it has to stand again.
    os.environ.update(case.get('env', {}))
    values = {}
    for opt in declared:
        group = opt.get('group')
        try:
            values[(group or 'DEFAULT') + '.' + opt['name']] = getattr(conf[group] if group else conf, opt['name'])
        except (cfg.Error, ValueError, RecursionError):
            values[(group or 'DEFAULT') + '.' + opt['name']] = {'refused': True}
    for name in case.get('env', {}):
        del os.environ[name]
    return values


def sample(wanted):
    """The sample that oslo-config-generator would write of these options."""
    by_declarer = {}
    groups = {}
    for opt in wanted['options']:
        name = opt.get('group', 'DEFAULT')
        if name not in groups:
            help_text = wanted['groups'].get(name)
            groups[name] = cfg.OptGroup(name, help=help_text) if help_text else name
        by_declarer.setdefault(opt['declarer'], {}).setdefault(name, []).append(option(opt))
    listing = [(declarer, [(groups[name], opts) for name, opts in by_group.items()])
               for declarer, by_group in by_declarer.items()]
    conf = pytypes.SimpleNamespace(wrap_width=79, minimal=False, summarize=False)
    out = io.StringIO()
    generator.rst2txt = None  # an optional formatter, which would change the text
    by_group = generator._get_groups(listing)
    formatter = generator._OptFormatter(conf, output_file=out)
    generator._output_opts(formatter, 'DEFAULT', by_group.pop('DEFAULT'))
    for name, data in sorted(by_group.items()):
        formatter.write('\n\n')
        generator._output_opts(formatter, name, data)
    return out.getvalue()


def main():
    with open(sys.argv[1]) as f:
        wanted = yaml.safe_load(f)
    for name in [n for n in os.environ if n.startswith('OS_')]:
        del os.environ[name]
    home = os.getcwd()
    golden = {'cases': {}, 'sample': sample(wanted['sample']),
              'places': [d.replace(os.path.expanduser('~'), '~') for d in cfg._get_config_dirs('kuryr')]}
    base = None
    for case in wanted['cases']:
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            values = answer(wanted['options'], case)
            os.chdir(home)
        if base is None:
            base = values
        elif 'refused' not in values:  # what is as by default is left out
            values = {k: v for k, v in values.items() if v != base[k] or type(v) is not type(base[k])}
        golden['cases'][case['name']] = values
    json.dump(golden, sys.stdout, indent=1, sort_keys=True, ensure_ascii=False)
    sys.stdout.write('\n')


if __name__ == '__main__':
    main()
