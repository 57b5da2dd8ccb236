// SPDX-License-Identifier: Apache-2.0

import type { ComponentChildren } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { addressOf, ago } from './api';
import { marks, meanings } from './words';
import type { Node } from './types';

export function State({ of }: { of: string }) {
  return <span class={'state ' + of} title={meanings[of]}><span aria-hidden="true">{marks[of]} </span>{of}</span>;
}

/** Since says for how long something is so, and counts on. */
export function Since({ time }: { time: string }) {
  const [, tick] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => tick((n) => n + 1), 1000);
    return () => clearInterval(timer);
  }, []);
  return <time dateTime={time} title={time}>{ago(time)}</time>;
}

export function Problem({ error }: { error?: string }) {
  return error ? <p class="problem" role="alert">The daemon did not answer: {error}</p> : null;
}

interface TableProps { caption: string; head: string[]; rows: ComponentChildren[][]; empty?: string }

/** Table is a table with a caption, or a sentence where there are no rows. */
export function Table({ caption, head, rows, empty }: TableProps) {
  if (rows.length === 0) return empty ? <section><h2>{caption}</h2><p class="dim">{empty}</p></section> : null;
  return (
    <section>
      <h2>{caption}</h2>
      <div class="scroll" tabIndex={0} role="region" aria-label={caption}>
        <table>
          <thead><tr>{head.map((h) => <th scope="col" key={h}>{h}</th>)}</tr></thead>
          <tbody>{rows.map((row, i) => <tr key={i}>{row.map((c, j) => <td key={j}>{c}</td>)}</tr>)}</tbody>
        </table>
      </div>
    </section>
  );
}

export function nodeTitle(n: Node) {
  return <><span class="kind">{n.kind}</span> <bdi>{n.group && n.group !== n.name ? n.group + '/' : ''}{n.name}</bdi></>;
}

/** NodeLine is a node with a link to its page, or to that of the object that has it. */
export function NodeLine({ node }: { node: Node }) {
  const page = node.object ? node.id : node.owner;
  return (
    <li>
      {page ? <a href={addressOf(page)}>{nodeTitle(node)}</a> : <span>{nodeTitle(node)}</span>}{' '}
      {node.state && <State of={node.state} />}
      {node.status && <span class={node.status === 'ERROR' ? 'state failing' : 'dim'}>{node.status}</span>}
      {node.state && node.state !== 'done' && node.since && <span class="dim"> since <Since time={node.since} /></span>}
      {node.reason && <span class="reason"><bdi>{node.reason}</bdi></span>}
    </li>
  );
}
