// SPDX-License-Identifier: Apache-2.0

import { render } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { useChanges } from './api';
import { ObjectPage } from './object';
import { OverviewPage } from './overview';
import { TopologyPage } from './topology';

function useHash(): string {
  const [hash, setHash] = useState(location.hash);
  useEffect(() => {
    const changed = () => setHash(location.hash);
    addEventListener('hashchange', changed);
    return () => removeEventListener('hashchange', changed);
  }, []);
  return hash;
}

function App() {
  const hash = useHash();
  const { count, link } = useChanges();
  const main = useRef<HTMLElement>(null);
  const first = useRef(true);
  const [, view = '', ...rest] = hash.split('/');
  const parts = rest.map((p) => {
    try {
      return decodeURIComponent(p);
    } catch {
      return p; // an address that was typed wrongly
    }
  });
  useEffect(() => {
    document.title = view === 'object' ? `${parts[2]} · Raven` : view === 'overview' ? 'Overview · Raven' : 'Topology · Raven';
    if (!first.current) main.current?.focus();
    first.current = false;
  }, [view, rest.join('/')]);
  const tab = (to: string, text: string, here: boolean) => <a href={to} aria-current={here ? 'page' : undefined}>{text}</a>;
  return (
    <>
      <a class="skip" href="#main" onClick={(e) => { e.preventDefault(); main.current?.focus(); }}>Skip to content</a>
      <header>
        <strong class="brand">Raven</strong>
        <nav aria-label="Pages">
          {tab('#/', 'Topology', view === '')}
          {tab('#/overview', 'Overview', view === 'overview')}
        </nav>
        <span class={'link ' + link} role="status">
          {link === 'live' ? '● live' : link === 'lost' ? '○ connection lost, trying again' : '○ connecting'}
        </span>
      </header>
      <main id="main" tabIndex={-1} ref={main}>
        {view === 'object' ? <ObjectPage kind={parts[0] ?? ''} namespace={parts[1] ?? ''} name={parts[2] ?? ''} count={count} />
          : view === 'overview' ? <OverviewPage count={count} />
          : <TopologyPage count={count} />}
      </main>
    </>
  );
}

render(<App />, document.getElementById('app')!);
