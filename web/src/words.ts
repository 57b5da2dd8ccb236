// SPDX-License-Identifier: Apache-2.0

// Signs and words for states and kinds. A state is never told by its color alone.
export const states = ['terminal', 'failing', 'waiting', 'pending', 'done'];

export const marks: Record<string, string> = { done: '✓', pending: '…', waiting: '◔', failing: '✖', terminal: '■' };

export const meanings: Record<string, string> = {
  done: 'as wanted', pending: 'work is under way', waiting: 'something else has to happen first',
  failing: 'tried again by itself', terminal: 'only a change helps',
};

export const kinds: Record<string, string> = {
  loadbalancer: 'lb', floatingip: 'fip', security_group: 'sg', Namespace: 'ns', Service: 'svc', NetworkPolicy: 'netpol',
  ovn_loadbalancer: 'ovn lb', ovn_loadbalancer_group: 'ovn group', subnetpool: 'pool',
};

export function worst(of: Record<string, number> | null): string {
  return states.find((s) => of?.[s]) ?? 'done';
}

export const objects = (n: number) => `${n} object${n === 1 ? '' : 's'}`;
