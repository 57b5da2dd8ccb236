// SPDX-License-Identifier: Apache-2.0

import { useEffect, useState } from 'preact/hooks';
import { addressOf, ask, query, useDocument } from './api';
import { Graph } from './graph';
import { NodeLine, Problem, State } from './parts';
import { objects, states } from './words';
import type { Found, Group, Node, Topology } from './types';

const listed = 200; // nodes of a namespace that the list shows at once

export interface Filters { state: string[]; driver: string[]; kind: string[] }
// What was expanded and filtered is still so when one comes back from an object.
const kept = { expanded: new Set<string>(), filters: { state: [], driver: [], kind: [] } as Filters };

export function TopologyPage({ count }: { count: number }) {
  const [expanded, setExpanded] = useState(kept.expanded);
  const [filters, setFilters] = useState(kept.filters);
  kept.expanded = expanded;
  kept.filters = filters;
  const { data, error } = useDocument<Topology>('api/topology?' + query({ ...filters, namespace: [...expanded] } as Record<string, string[]>), count);
  const toggle = (name: string) => setExpanded((old) => {
    const next = new Set(old);
    if (!next.delete(name)) next.add(name);
    return next;
  });
  return (
    <div class="topology">
      <h1 class="unseen">Topology</h1>
      <aside aria-label="Namespaces, search and filters">
        <Search />
        <FilterBar filters={filters} set={setFilters} topology={data} />
        <Problem error={error} />
        {data?.standingBy && <p role="status">This process stands by: another one leads, and has the topology.</p>}
        {!!data?.hidden && <p role="status">{data.hidden} nodes are left out: filter, to see fewer.</p>}
        {data && <Tree topology={data} expanded={expanded} toggle={toggle} />}
      </aside>
      {data && <Graph topology={data} expanded={expanded} toggle={toggle} />}
    </div>
  );
}

function Search() {
  const [text, setText] = useState('');
  const [found, setFound] = useState<Found>();
  useEffect(() => {
    if (text.trim() === '') {
      setFound(undefined);
      return;
    }
    const stop = new AbortController();
    const timer = setTimeout(() => {
      ask<Found>('api/search?' + query({ q: text }), stop.signal).then(setFound, () => {});
    }, 150);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [text]);
  return (
    <search>
      <label for="search">Search names, ids and addresses</label>
      <input id="search" type="search" value={text} onInput={(e) => setText(e.currentTarget.value)} />
      <div role="status">
        {found && (found.objects?.length ? `${found.objects.length}${found.more ? ' or more' : ''} found` : 'nothing found')}
      </div>
      {!!found?.objects?.length && (
        <ul class="nodes">
          {found.objects.map((o) => (
            <li key={o.id}>
              <a href={addressOf(o.id)}><span class="kind">{o.kind}</span> <bdi>{o.namespace ? o.namespace + '/' : ''}{o.name}</bdi></a>{' '}
              <State of={o.state} /> {o.by !== 'name' && <span class="dim">by {o.by}</span>}
            </li>
          ))}
        </ul>
      )}
    </search>
  );
}

function FilterBar({ filters, set, topology }: { filters: Filters; set: (f: Filters) => void; topology?: Topology }) {
  const one = (key: keyof Filters, label: string, values: string[]) => (
    <label>{label}
      <select value={filters[key][0] ?? ''} onChange={(e) => set({ ...filters, [key]: e.currentTarget.value ? [e.currentTarget.value] : [] })}>
        <option value="">all</option>
        {values.map((v) => <option key={v} value={v}>{v}</option>)}
      </select>
    </label>
  );
  return (
    <div class="filters" role="group" aria-label="Filters">
      {one('state', 'State', states)}
      {one('driver', 'Driver', topology?.drivers ?? [])}
      {one('kind', 'Kind', topology?.kinds ?? [])}
    </div>
  );
}

interface TreeProps { topology: Topology; expanded: Set<string>; toggle: (namespace: string) => void }

function Tree({ topology, expanded, toggle }: TreeProps) {
  const inside = new Map<string, Node[]>();
  for (const n of topology.nodes ?? []) inside.set(n.group ?? '', [...(inside.get(n.group ?? '') ?? []), n]);
  const [all, setAll] = useState(false);
  const groups = topology.groups ?? [];
  const shown = all ? groups : groups.slice(0, listed);
  return (
    <>
      <h2>Namespaces <span class="dim">{groups.length}</span></h2>
      {groups.length === 0 && <p class="dim">None.</p>}
      <ul class="groups">
        {shown.map((g) => (
          <li key={g.namespace}>
            <button type="button" aria-expanded={expanded.has(g.namespace)} onClick={() => toggle(g.namespace)}>
              <bdi>{g.namespace}</bdi> <Counts group={g} />
            </button>
            {expanded.has(g.namespace) && <Nodes nodes={inside.get(g.namespace) ?? []} />}
          </li>
        ))}
      </ul>
      {shown.length < groups.length && <button type="button" onClick={() => setAll(true)}>Show all {groups.length}</button>}
      <h2>Outside of namespaces</h2>
      <Nodes nodes={inside.get('') ?? []} />
    </>
  );
}

function Counts({ group }: { group: Group }) {
  return (
    <span class="counts">
      <span class="dim">{objects(group.objects)} </span>
      {states.filter((s) => s !== 'done' && group.states?.[s]).map((s) => <span key={s}>{group.states?.[s]} <State of={s} /> </span>)}
    </span>
  );
}

function Nodes({ nodes }: { nodes: Node[] }) {
  const [all, setAll] = useState(false);
  const order = (n: Node) => (n.object ? states.indexOf(n.state ?? 'done') : states.length);
  const sorted = [...nodes].sort((a, b) => order(a) - order(b));
  const shown = all ? sorted : sorted.slice(0, listed);
  return (
    <>
      {nodes.length === 0 && <p class="dim">None.</p>}
      <ul class="nodes">{shown.map((n) => <NodeLine key={n.id} node={n} />)}</ul>
      {shown.length < sorted.length && <button type="button" onClick={() => setAll(true)}>Show all {sorted.length}</button>}
    </>
  );
}
