// SPDX-License-Identifier: Apache-2.0

// Where everything stands. Positions are kept: what is there stays when something comes, goes or changes.
import cytoscape from 'cytoscape';
import fcose from 'cytoscape-fcose';
import type { Edge, Node, Topology } from './types';

cytoscape.use(fcose);

export interface Point { x: number; y: number }
export const cell = { width: 112, height: 72 };
const most = 400; // folded nodes that the layout engine places; more stand in rows

export class Places {
  private base = new Map<string, Point>(); // of what is outside of expanded namespaces
  private slots = new Map<string, Map<string, number>>(); // of the nodes of a namespace, in its rows

  /** place returns where each shown node and each folded namespace stands. */
  place(t: Topology, expanded: Set<string>): Map<string, Point> {
    const nodes = t.nodes ?? [];
    const tops = [...(t.groups ?? []).map((g) => 'group/' + g.namespace), ...nodes.filter((n) => !n.group).map((n) => n.id)];
    this.settle(tops, folded(t.edges ?? [], nodes));
    const boxes = new Map<string, { nodes: Node[]; columns: number; width: number; height: number }>();
    for (const name of expanded) {
      const inside = nodes.filter((n) => n.group === name);
      if (inside.length === 0) continue;
      const slots = this.fill(name, inside);
      const last = Math.max(...slots.values()) + 1;
      const columns = Math.max(3, Math.ceil(Math.sqrt(last * 1.4)));
      boxes.set('group/' + name, { nodes: inside, columns, width: columns * cell.width, height: Math.ceil(last / columns) * cell.height });
    }
    const where = new Map<string, Point>();
    for (const id of tops) {
      const p = { ...this.base.get(id)! };
      for (const [other, box] of boxes) {
        if (other === id) continue;
        const center = this.base.get(other)!;
        p.x += (p.x >= center.x ? box.width : -box.width) / 2;
        p.y += (p.y >= center.y ? box.height : -box.height) / 2;
      }
      where.set(id, p);
    }
    for (const [id, box] of boxes) {
      const center = where.get(id)!;
      const slots = this.slots.get(id.slice('group/'.length))!;
      for (const n of box.nodes) {
        const slot = slots.get(n.id)!;
        where.set(n.id, {
          x: center.x - box.width / 2 + (slot % box.columns + 0.5) * cell.width,
          y: center.y - box.height / 2 + (Math.floor(slot / box.columns) + 0.5) * cell.height,
        });
      }
      where.delete(id); // the box is as large as what is in it
    }
    return where;
  }

  /** fill gives each node a place in the rows of its namespace: resources first, then objects, and later ones where there is room. */
  private fill(name: string, inside: Node[]): Map<string, number> {
    const slots = this.slots.get(name) ?? new Map<string, number>();
    this.slots.set(name, slots);
    const there = new Set(inside.map((n) => n.id));
    for (const id of slots.keys()) if (!there.has(id)) slots.delete(id);
    const taken = new Set(slots.values());
    let free = 0;
    const order = (n: Node) => (n.kind === 'Namespace' ? 0 : n.object ? 2 : 1);
    for (const n of [...inside].sort((a, b) => order(a) - order(b) || (a.id < b.id ? -1 : 1))) {
      if (slots.has(n.id)) continue;
      while (taken.has(free)) free++;
      slots.set(n.id, free);
      taken.add(free);
    }
    return slots;
  }

  /** settle places what has no place yet. The layout engine may not move what has one. */
  private settle(tops: string[], edges: Edge[]) {
    for (const id of this.base.keys()) if (!tops.includes(id) && !id.startsWith('group/')) this.base.delete(id);
    const fresh = tops.filter((id) => !this.base.has(id));
    if (fresh.length === 0) return;
    if (tops.length > most) {
      const columns = Math.ceil(Math.sqrt(tops.length * 1.6));
      let i = 0;
      const taken = new Set([...this.base.values()].map((p) => p.x + ',' + p.y));
      for (const id of fresh) {
        let p: Point;
        do p = { x: (i % columns) * 170, y: Math.floor(i++ / columns) * 110 };
        while (taken.has(p.x + ',' + p.y));
        this.base.set(id, p);
      }
      return;
    }
    const graph = cytoscape({ headless: true, styleEnabled: true, style: [{ selector: 'node', style: { width: 130, height: 70 } }] });
    const known = new Set(tops);
    graph.add(tops.map((id, i) => ({
      data: { id },
      position: this.base.get(id) ?? { x: 420 * Math.cos((2 * Math.PI * i) / tops.length), y: 420 * Math.sin((2 * Math.PI * i) / tops.length) },
    })));
    graph.add(edges.filter((e) => known.has(e.from) && known.has(e.to)).map((e) => ({ data: { source: e.from, target: e.to } })));
    const fixed = tops.filter((id) => this.base.has(id)).map((nodeId) => ({ nodeId, position: this.base.get(nodeId)! }));
    graph.layout({
      name: 'fcose', animate: false, randomize: false, quality: 'proof', nodeSeparation: 120, idealEdgeLength: () => 150,
      nodeRepulsion: () => 14000, packComponents: false, fixedNodeConstraint: fixed.length > 0 ? fixed : undefined,
    } as cytoscape.LayoutOptions).run();
    for (const id of fresh) this.base.set(id, { ...graph.getElementById(id).position() });
    graph.destroy();
  }
}

/** folded are edges with namespaces in place of what is in them. */
function folded(edges: Edge[], nodes: Node[]): Edge[] {
  const group = new Map(nodes.filter((n) => n.group).map((n) => [n.id, 'group/' + n.group]));
  const seen = new Map<string, Edge>();
  for (const e of edges) {
    const one = { from: group.get(e.from) ?? e.from, to: group.get(e.to) ?? e.to };
    if (one.from !== one.to) seen.set(one.from + '\n' + one.to, one);
  }
  return [...seen.values()];
}
