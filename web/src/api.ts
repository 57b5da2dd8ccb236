// SPDX-License-Identifier: Apache-2.0

// What the daemon is asked, and how the page learns that there is something newer.
import { useEffect, useRef, useState } from 'preact/hooks';

export type Link = 'connecting' | 'live' | 'lost';

export async function ask<T>(path: string, signal?: AbortSignal): Promise<T> {
  const answer = await fetch(path, { signal });
  if (!answer.ok) throw new Error(`${answer.status}: ${(await answer.text()).trim()}`);
  return (await answer.json()) as T;
}

/** useChanges counts the events of the daemon, and says how the connection stands. */
export function useChanges(): { count: number; link: Link } {
  const [count, setCount] = useState(0);
  const [link, setLink] = useState<Link>('connecting');
  useEffect(() => {
    let source: EventSource;
    let timer = 0;
    const open = () => {
      source = new EventSource('api/changes');
      source.onopen = () => setLink('live');
      source.addEventListener('change', () => {
        setLink('live');
        setCount((n) => n + 1);
      });
      source.onerror = () => {
        setLink('lost');
        source.close();
        window.clearTimeout(timer);
        timer = window.setTimeout(open, 1000);
      };
    };
    open();
    return () => {
      window.clearTimeout(timer);
      source.close();
    };
  }, []);
  return { count, link };
}

/**
 * useDocument asks for a path, and again whenever the daemon has something newer. While an answer is under way no other
 * is asked for: a slow browser asks less often.
 */
export function useDocument<T>(path: string, count: number): { data?: T; error?: string } {
  const [state, setState] = useState<{ path: string; data?: T; error?: string }>({ path });
  const busy = useRef<{ path: string; again: boolean } | null>(null);
  useEffect(() => {
    if (path === '') return;
    if (busy.current?.path === path) {
      busy.current.again = true;
      return;
    }
    const mine = { path, again: false };
    busy.current = mine;
    const run = async () => {
      do {
        mine.again = false;
        try {
          const data = await ask<T>(path);
          if (busy.current === mine) setState({ path, data });
        } catch (e) {
          if (busy.current === mine) setState((s) => ({ ...s, path, error: String(e instanceof Error ? e.message : e) }));
        }
      } while (mine.again && busy.current === mine);
      if (busy.current === mine) busy.current = null;
    };
    void run();
  }, [path, count]);
  return state;
}

export function query(values: Record<string, string | string[]>): string {
  const q = new URLSearchParams();
  for (const [key, value] of Object.entries(values)) {
    for (const one of Array.isArray(value) ? value : [value]) if (one !== '') q.append(key, one);
  }
  return q.toString();
}

/** address is the deep link of an object: the same that the daemon makes. */
export function address(kind: string, namespace: string, name: string): string {
  return '#/object/' + [kind, namespace, name].map(encodeURIComponent).join('/');
}

/** addressOf is the deep link of a node's id, which is kind/namespace/name. */
export function addressOf(id: string): string {
  const [kind, namespace, ...name] = id.split('/');
  return address(kind, namespace ?? '', name.join('/'));
}

export function ago(time: string, now = Date.now()): string {
  const s = Math.max(0, Math.round((now - Date.parse(time)) / 1000));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}
