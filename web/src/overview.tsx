// SPDX-License-Identifier: Apache-2.0

import { useEffect, useState } from 'preact/hooks';
import { useDocument } from './api';
import { NodeLine, Problem, Since, State, Table } from './parts';
import { objects, states } from './words';
import type { Overview, Report, Request, Sample } from './types';

const interval = 5000; // requests and drivers change without the topology

export function OverviewPage({ count }: { count: number }) {
  const [tick, setTick] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => setTick((n) => n + 1), interval);
    return () => clearInterval(timer);
  }, []);
  const { data, error } = useDocument<Overview>('api/overview', count + tick);
  const r = data?.report as Report | undefined;
  return (
    <article class="overview">
      <h1>Overview</h1>
      <Problem error={error} />
      {r?.waitsFor && <p role="status">Raven waits for {r.waitsFor}</p>}
      {data && r && <Body overview={data} report={r} />}
    </article>
  );
}

function Body({ overview, report: r }: { overview: Overview; report: Report }) {
  return (
    <>
      <p>
        Raven {r.version}, cluster <code>{r.cluster}</code>, project <code>{r.project}</code>, started <Since time={r.started} /> ago.{' '}
        {r.ready ? 'Every driver has answered for every object.' : 'Not ready: not every driver has answered for every object.'}
      </p>
      <ul class="cards" aria-label="Objects by state">
        {states.map((s) => <li key={s}><b>{r.counts?.[s] ?? 0}</b> <State of={s} /></li>)}
      </ul>
      <Hour samples={[...(overview.hour ?? []).slice(-59), { time: "", counts: r.counts }]} />
      <section>
        <h2>Needs a look</h2>
        {!overview.problems?.length && <p class="dim">Nothing.</p>}
        <ul class="nodes">{(overview.problems ?? []).map((n) => <NodeLine key={n.id} node={n} />)}</ul>
        {!!overview.more && <p class="dim">and {overview.more} more: filter the topology by state</p>}
      </section>
      <Table caption="Drivers" head={['Driver', 'State', 'Objects', 'Restarts', 'Mass-deletion guard', 'Watches', 'Problem']}
        rows={(r.drivers ?? []).map((d) => [
          `${d.name} ${d.version}`, <span class={d.state === 'ready' ? '' : 'state failing'}>{d.state}</span>, d.objects, d.restarts,
          d.guard ? <span class="state failing">holds {d.guard.held} deletions, {d.guard.allowed} are allowed</span> : 'holds nothing',
          (d.watches ?? []).map((w) => `${w.name} ${w.synced ? w.objects : 'not synced'}${w.error ? ': ' + w.error : ''}`).join(', '),
          <bdi>{d.problem}{d.isolated ? ` ${d.isolated} objects are isolated` : ''}</bdi>,
        ])} />
      <Table caption="Disabled drivers that still have resources" head={['Driver', 'Objects', 'Resources', 'Problem']}
        rows={(r.disabled ?? []).map((d) => [d.driver, d.objects, d.resources, d.problem])} />
      <Leader report={r} />
      <Requests list={r.requests?.requests ?? []} />
      <Table caption="Changed by others" head={['Found', 'Kind', 'ID', 'Of', 'What']} empty="Nothing was found."
        rows={(r.drifts ?? []).map((d) => [<><Since time={d.found} /> ago</>, d.kind, <code>{d.id}</code>, d.of, d.what])} />
    </>
  );
}

function Leader({ report: r }: { report: Report }) {
  return (
    <section>
      <h2>Leader</h2>
      {r.leader ? (
        <p>
          {r.leader.leading ? 'This process leads' : `${r.leader.holder || 'Nobody'} leads`}, by Lease <code>{r.leader.lease}</code>.{' '}
          {r.leader.problem}
        </p>
      ) : <p>This process works alone: no election is configured.</p>}
      {r.ovn && <p>OVN: {r.ovn.connected ? 'connected' : 'not connected'} {r.ovn.error}</p>}
      {!!r.handover?.waiting && <p>{r.handover.waiting} Services wait to be handed over.</p>}
    </section>
  );
}

function Requests({ list }: { list: Request[] }) {
  const refused = new Map<string, number>();
  for (const r of list) if (!/^[23]/.test(r.status)) refused.set(r.status, (refused.get(r.status) ?? 0) + r.count);
  const classes = [...refused].sort((a, b) => b[1] - a[1]);
  return (
    <>
      <Table caption="Requests to Neutron that failed, by status" head={['Status', 'Requests']} empty="None."
        rows={classes.map(([status, n]) => [status, n])} />
      <Table caption="Requests to Neutron" head={['Method', 'Kind', 'Status', 'Requests', 'Mean seconds', 'Longest']} empty="None yet."
        rows={list.map((r) => [r.method, r.kind, r.status, r.count, (r.durationSeconds / Math.max(r.count, 1)).toFixed(3), r.longestSeconds.toFixed(3)])} />
    </>
  );
}

/** Hour shows the states of each minute, and the same as numbers. */
function Hour({ samples }: { samples: Sample[] }) {
  const sum = (s: Sample) => Object.values(s.counts ?? {}).reduce((a, b) => a + b, 0);
  const top = Math.max(1, ...samples.map(sum));
  const last = samples.at(-1);
  return (
    <section>
      <h2>The last hour</h2>
      <svg class="hour" viewBox="0 0 60 20" preserveAspectRatio="none" role="img"
        aria-label={`Objects by state, ${samples.length} samples. The last: ${last ? states.map((s) => `${last.counts?.[s] ?? 0} ${s}`).join(', ') : 'none'}`}>
        {samples.map((s, i) => {
          let y = 20;
          return [...states].reverse().map((state) => {
            const height = (20 * (s.counts?.[state] ?? 0)) / top;
            y -= height;
            return <rect key={state + i} class={'fill-' + state} x={60 - samples.length + i} y={y} width="0.9" height={height} />;
          });
        })}
      </svg>
      <p class="dim">One bar a minute, now on the right; the full height is {objects(top)}.</p>
    </section>
  );
}
