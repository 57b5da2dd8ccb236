// SPDX-License-Identifier: Apache-2.0

import { query, useDocument } from './api';
import { NodeLine, Problem, Since, State, Table } from './parts';
import type { Description, Descriptions, Page, Reconciled } from './types';

interface Props { kind: string; namespace: string; name: string; count: number }

export function ObjectPage({ kind, namespace, name, count }: Props) {
  // A namespace is in itself for the daemon's filters.
  const asked = { kind, namespace, name };
  const { data, error } = useDocument<Page>('api/object?' + query(asked), count);
  const document = data?.document as Descriptions | undefined;
  const objects = document?.objects ?? [];
  return (
    <article class="object">
      <h1><span class="kind">{kind}</span> <bdi>{namespace ? namespace + '/' : ''}{name}</bdi></h1>
      <Problem error={error} />
      {document?.waitsFor && <p role="status">Raven waits for {document.waitsFor}</p>}
      {document && objects.length === 0 && (
        <p role="status">
          {document.leader && !document.leader.leading ? 'This process stands by: ask the one that leads.'
            : 'Raven has no such object: it is gone, no enabled driver serves it, or it needs nothing.'}
        </p>
      )}
      {objects.map((o) => <One key={o.driver + o.uid} object={o} />)}
      {!!data?.links?.length && (
        <section>
          <h2>Linked with</h2>
          <ul class="nodes">{data.links.slice(0, 200).map((n) => <NodeLine key={n.id} node={n} />)}</ul>
          {data.links.length > 200 && <p class="dim">and {data.links.length - 200} more</p>}
        </section>
      )}
    </article>
  );
}

function One({ object: o }: { object: Description }) {
  const waiting = o.state === 'waiting' ? 'Waits for' : 'Why';
  return (
    <section class="card" aria-label={'driver ' + o.driver}>
      <p>
        <State of={o.state} /> for <Since time={o.since} />, by driver <b>{o.driver}</b>
        {o.deleted && ', deleted: what it had is being removed'}
        {!!o.tries && `, tried ${o.tries} times`}
        {o.nextTry && <>, next try <time dateTime={o.nextTry}>{new Date(o.nextTry).toLocaleTimeString()}</time></>}
      </p>
      {!!o.reasons?.length && <div class="why"><h2>{waiting}</h2><ul>{o.reasons.map((r) => <li key={r}><bdi>{r}</bdi></li>)}</ul></div>}
      {!!o.messages?.length && <><h2>The driver says</h2><ul>{o.messages.map((m) => <li key={m}><bdi>{m}</bdi></li>)}</ul></>}
      <Changes object={o} />
      <Table caption="Resources" head={['Kind', 'Name', 'ID', 'Status', 'Role', 'Attributes']} empty="It has none in the cloud."
        rows={(o.resources ?? []).map((r) => [
          r.kind + (r.shared ? ' (shared)' : ''), <bdi>{r.name}</bdi>, <code>{r.id}</code>,
          <span class={r.status === 'ERROR' ? 'state failing' : ''}>{r.status}</span>, r.role,
          r.attributes ? <details><summary>{Object.keys(r.attributes).length} attributes</summary><pre>{JSON.stringify(r.attributes, null, 2)}</pre></details> : '',
        ])} />
      <Table caption="Depends on" head={['Watch', 'Object', 'State']} rows={(o.needs ?? []).map((n) => [
        n.watch, <bdi>{[n.namespace, n.name || n.selector].filter(Boolean).join('/')}</bdi>, `${n.state}, ${n.objects} objects`,
      ])} />
      <Table caption="Last reconciles" head={['Ended', 'Outcome', 'Steps', 'Seconds', 'Translate, plan, apply, write back', 'Why']}
        rows={(o.reconciles ?? []).map((r) => [
          <><Since time={r.ended} /> ago</>, r.outcome, r.steps, r.seconds.toFixed(3), <Phases of={r} />, <bdi>{r.why}</bdi>,
        ])} />
      <Table caption="Events" head={['Time', 'Type', 'Reason', 'Message']} rows={(o.events ?? []).map((e) => [
        <><Since time={e.time} /> ago</>, e.type, e.reason, <bdi>{e.message}</bdi>,
      ])} />
      <Carried object={o} />
      <p class="dim">UID <code>{o.uid}</code></p>
    </section>
  );
}

/** Changes is what is still to be made. */
function Changes({ object: o }: { object: Description }) {
  if (!o.wants?.length) return null;
  return (
    <section>
      <h2>Wanted, and not there yet</h2>
      <ul class="diff">{o.wants.map((w) => <li key={w.kind + w.role}><ins>+ {w.kind} <bdi>{w.role}</bdi></ins></li>)}</ul>
    </section>
  );
}

function Phases({ of }: { of: Reconciled }) {
  const parts = [of.translateSeconds, of.planSeconds, of.applySeconds, of.writeBackSeconds];
  const sum = Math.max(of.seconds, 1e-9);
  let x = 0;
  return (
    <>
      <svg class="bar" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">
        {parts.map((p, i) => {
          const width = (100 * p) / sum;
          x += width;
          return <rect key={i} class={'phase' + i} x={x - width} y="0" width={width} height="8" />;
        })}
      </svg>
      {parts.map((p) => p.toFixed(3)).join(', ')}
    </>
  );
}

function Carried({ object: o }: { object: Description }) {
  const k = o.kubernetes;
  if (!k) return null;
  const rows = [...Object.entries(k.annotations ?? {}), ...Object.entries(k.labels ?? {})].map(([key, value]) => [
    <bdi>{key}</bdi>, <code class="wrap">{value}</code>,
  ]);
  for (const a of k.addresses ?? []) rows.push([<>address</>, <code>{a}</code>]);
  return <Table caption="In Kubernetes" head={['Annotation, label or address', 'Value']} rows={rows} />;
}
