// SPDX-License-Identifier: Apache-2.0

// The graph on a canvas. The same is in the list beside it, for who cannot see or point.
import cytoscape from 'cytoscape';
import { useEffect, useRef } from 'preact/hooks';
import { addressOf } from './api';
import { Places } from './layout';
import { kinds, marks, objects, worst } from './words';
import type { Group, Node, Topology } from './types';

const color = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function sheet(): cytoscape.StylesheetJson {
  const text = color('--text');
  return [
    { selector: 'node', style: {
      label: 'data(label)', 'font-size': 13, 'min-zoomed-font-size': 6, color: text, 'text-valign': 'bottom', 'text-margin-y': 3,
      'text-wrap': 'ellipsis', 'text-max-width': '104px', width: 26, height: 26, 'background-color': color('--line'),
      'border-width': 2, 'border-color': color('--line'),
    } },
    { selector: 'node.resource', style: { shape: 'diamond', 'background-color': color('--resource') } },
    { selector: 'node.object', style: { shape: 'ellipse' } },
    { selector: 'node.group', style: {
      shape: 'round-rectangle', width: 128, height: 54, 'text-valign': 'center', 'text-margin-y': 0, 'text-wrap': 'wrap',
      'background-color': color('--panel'), 'border-width': 3, 'font-size': 14, 'text-max-width': '120px',
    } },
    { selector: 'node.group:parent', style: {
      'text-valign': 'top', 'background-opacity': 0.4, padding: '26px', 'font-size': 16, 'text-max-width': '400px',
    } },
    ...['done', 'pending', 'waiting', 'failing', 'terminal'].map((state) => ({
      selector: 'node.' + state, style: { 'border-color': color('--' + state) },
    })),
    ...['done', 'pending', 'waiting', 'failing', 'terminal'].map((state) => ({
      selector: 'node.object.' + state, style: { 'background-color': color('--' + state) },
    })),
    { selector: 'node.error', style: { 'border-color': color('--failing'), 'border-width': 5 } },
    { selector: 'node.near', style: { 'border-width': 6, 'border-color': color('--accent') } },
    { selector: 'edge', style: { width: 1, 'line-color': color('--line'), 'curve-style': 'haystack' } },
    { selector: 'edge.near', style: { width: 3, 'line-color': color('--accent') } },
  ];
}

function groupData(g: Group): { label: string; state: string } {
  const bad = (['terminal', 'failing', 'waiting', 'pending'] as const).filter((s) => g.states?.[s]);
  const more = bad.map((s) => `${marks[s]} ${g.states?.[s]} ${s}`).join(' ');
  return { label: `${clean(g.namespace)}\n${objects(g.objects)}${more ? '\n' + more : ''}`, state: worst(g.states) };
}

/** clean keeps signs that change the direction of text, or lines, out of a label on the canvas. */
const clean = (name: string) => name.replace(/[\u0000-\u001f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, '\ufffd');

function nodeData(n: Node): { label: string; classes: string } {
  const mark = n.object ? marks[n.state ?? ''] ?? '' : n.status === 'ERROR' ? '✖ ' : '';
  return {
    label: `${mark} ${kinds[n.kind] ?? n.kind} ${clean(n.name)}`.trim(),
    classes: n.object ? `object ${n.state}` : `resource ${n.status === 'ERROR' ? 'error' : ''}`,
  };
}

interface Props { topology: Topology; expanded: Set<string>; toggle: (namespace: string) => void }

export function Graph({ topology, expanded, toggle }: Props) {
  const host = useRef<HTMLDivElement>(null);
  const graph = useRef<cytoscape.Core | null>(null);
  const places = useRef(new Places());
  const act = useRef(toggle);
  const shape = useRef('');
  act.current = toggle;

  useEffect(() => {
    const cy = cytoscape({
      container: host.current, style: sheet(), pixelRatio: 1, textureOnViewport: true, hideEdgesOnViewport: true,
      minZoom: 0.02, maxZoom: 3, boxSelectionEnabled: false, autoungrabify: true,
    });
    graph.current = cy;
    (window as unknown as { ravenGraph: cytoscape.Core }).ravenGraph = cy; // for who looks into it from the console
    cy.on('tap', 'node', (e) => {
      const id: string = e.target.id();
      if (e.target.hasClass('group')) act.current(id.slice('group/'.length));
      else if (e.target.data('page')) location.hash = addressOf(e.target.data('page'));
    });
    cy.on('mouseover', 'node', (e) => e.target.closedNeighborhood().addClass('near'));
    cy.on('mouseout', 'node', () => cy.elements('.near').removeClass('near'));
    const dark = matchMedia('(prefers-color-scheme: dark)');
    const restyle = () => cy.style(sheet());
    dark.addEventListener('change', restyle);
    return () => {
      dark.removeEventListener('change', restyle);
      cy.destroy();
    };
  }, []);

  useEffect(() => {
    const cy = graph.current;
    if (!cy) return;
    draw(cy, topology, places.current.place(topology, expanded));
    const now = [...expanded].sort().join('\n') + '|' + ((topology.nodes?.length ?? 0) + (topology.groups?.length ?? 0) > 0);
    if (now !== shape.current) cy.fit(undefined, 24); // when something changes by itself the view stays
    shape.current = now;
    performance.mark('raven-topology');
  }, [topology]);

  const fit = () => graph.current?.fit(undefined, 24);
  const zoom = (by: number) => {
    const cy = graph.current;
    cy?.zoom({ level: cy.zoom() * by, renderedPosition: { x: cy.width() / 2, y: cy.height() / 2 } });
  };
  return (
    <div class="graph">
      <div class="tools">
        <button type="button" onClick={() => zoom(1.4)} aria-label="Zoom in">+</button>
        <button type="button" onClick={() => zoom(1 / 1.4)} aria-label="Zoom out">−</button>
        <button type="button" onClick={fit}>Fit</button>
      </div>
      <div class="canvas" ref={host} role="img" aria-label="The topology as a graph. The list has the same content." />
    </div>
  );
}

/** draw changes what differs, and leaves the rest alone. */
function draw(cy: cytoscape.Core, t: Topology, where: Map<string, { x: number; y: number }>) {
  const wanted = new Map<string, { data: Record<string, unknown>; classes: string }>();
  for (const g of t.groups ?? []) {
    const { label, state } = groupData(g);
    wanted.set('group/' + g.namespace, { data: { label }, classes: `group ${state}` });
  }
  for (const n of t.nodes ?? []) {
    const { label, classes } = nodeData(n);
    const parent = n.group && wanted.has('group/' + n.group) ? 'group/' + n.group : undefined;
    wanted.set(n.id, { data: { label, parent, page: n.object ? n.id : n.owner }, classes });
  }
  const edges = new Map<string, { source: string; target: string }>();
  for (const e of t.edges ?? []) {
    if (wanted.has(e.from) && wanted.has(e.to)) edges.set(e.from + ' → ' + e.to, { source: e.from, target: e.to });
  }
  cy.batch(() => {
    cy.edges().filter((e) => !edges.has(e.id())).remove();
    cy.nodes().filter((n) => !wanted.has(n.id())).remove();
    const fresh: cytoscape.ElementDefinition[] = [];
    for (const [id, { data, classes }] of wanted) {
      const old = cy.getElementById(id);
      if (old.empty()) {
        fresh.push({ group: 'nodes', data: { id, ...data }, classes, position: { ...(where.get(id) ?? { x: 0, y: 0 }) } });
        continue;
      }
      if (old.data('label') !== data.label) old.data('label', data.label);
      old.classes(classes);
      const p = where.get(id);
      if (p && !old.isParent()) old.position(p);
    }
    for (const [id, ends] of edges) if (cy.getElementById(id).empty()) fresh.push({ group: 'edges', data: { id, ...ends } });
    cy.add(fresh);
    for (const [id, p] of where) {
      const n = cy.getElementById(id);
      if (!n.isParent()) n.position({ ...p });
    }
  });
}
