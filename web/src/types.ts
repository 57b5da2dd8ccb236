// Code generated from the Go types by `make generate`. DO NOT EDIT.

export interface Carried {
  annotations?: Record<string, string>;
  labels?: Record<string, string>;
  addresses?: string[];
  deleting?: boolean;
}

export interface Description {
  driver: string;
  kind: string;
  namespace?: string;
  name: string;
  uid: string;
  state: string;
  reasons?: string[];
  since: string;
  nextTry?: string;
  tries?: number;
  deleted?: boolean;
  handoverGapSeconds?: number;
  messages?: string[];
  resources: ResourceStatus[] | null;
  kubernetes?: Carried;
  needs?: NeedStatus[];
  wants?: WantStatus[];
  reconciles?: Reconciled[];
  events?: Told[];
  page?: string;
}

export interface Descriptions {
  formatVersion: number;
  version: string;
  cluster: string;
  waitsFor?: string;
  leader?: LeaderReport;
  objects: Description[] | null;
}

export interface DisabledStatus {
  driver: string;
  objects: number;
  resources: number;
  untold?: number;
  problem?: string;
}

export interface DriftStatus {
  found: string;
  kind: string;
  id: string;
  of: string;
  what: string;
}

export interface DriverReport {
  name: string;
  version: string;
  objects: number;
  replayed: boolean;
  guard?: Guard;
  path: string;
  pid?: number;
  state: string;
  isolated?: number;
  restarts: number;
  watches: WatchReport[] | null;
  problem?: string;
}

export interface Edge {
  from: string;
  to: string;
}

export interface Found {
  objects: FoundObject[] | null;
  more?: boolean;
}

export interface FoundObject {
  id: string;
  kind: string;
  namespace?: string;
  name: string;
  state: string;
  by: string;
}

export interface Group {
  namespace: string;
  objects: number;
  states: Record<string, number> | null;
  kinds: Record<string, number> | null;
}

export interface Guard {
  driver: string;
  held: number;
  allowed: number;
}

export interface HandoverStatus {
  waiting: number;
  since?: string;
  unseen?: number;
}

export interface LeaderReport {
  identity: string;
  lease: string;
  holder: string;
  leading: boolean;
  since: string;
  terms: number;
  problem?: string;
  refused?: boolean;
}

export interface NeedStatus {
  watch: string;
  namespace?: string;
  name?: string;
  selector?: string;
  state: string;
  objects: number;
}

export interface NeutronStats {
  requests: Request[] | null;
  slots: number;
  inFlight: number;
  waiting: number;
  heldBackSeconds?: number;
  batch: Record<string, number> | null;
  queued: Record<string, number> | null;
  events?: Record<string, number>;
}

export interface Node {
  id: string;
  group?: string;
  kind: string;
  name: string;
  object?: boolean;
  owner?: string;
  drivers?: string[];
  state?: string;
  reason?: string;
  since?: string;
  status?: string;
}

export interface ObjectStatus {
  driver: string;
  kind: string;
  namespace?: string;
  name: string;
  uid: string;
  state: string;
  reasons?: string[];
  since: string;
  nextTry?: string;
  tries?: number;
  deleted?: boolean;
  handoverGapSeconds?: number;
  messages?: string[];
  resources: ResourceStatus[] | null;
}

export interface Overview {
  report: unknown;
  hour: Sample[] | null;
  problems: Node[] | null;
  more?: number;
}

export interface OvnStatus {
  connected: boolean;
  endpoint?: string;
  version?: string;
  outdated?: string;
  since: string;
  error?: string;
  balancers: number;
  groups: number;
  rows: number;
  transactions?: Record<string, number>;
  connections: number;
}

export interface Page {
  id: string;
  document: unknown;
  links: Node[] | null;
}

export interface Reconciled {
  ended: string;
  outcome: string;
  seconds: number;
  translateSeconds: number;
  planSeconds: number;
  applySeconds: number;
  writeBackSeconds: number;
  steps: number;
  why?: string;
}

export interface Report {
  formatVersion: number;
  version: string;
  cluster: string;
  project: string;
  started: string;
  ready: boolean;
  waitsFor?: string;
  leader?: LeaderReport;
  drivers: DriverReport[] | null;
  disabled?: DisabledStatus[];
  counts: Record<string, number> | null;
  requests: NeutronStats;
  ovn?: OvnStatus;
  handover?: HandoverStatus;
  drifts?: DriftStatus[];
  objects: ObjectStatus[] | null;
}

export interface Request {
  method: string;
  kind: string;
  status: string;
  count: number;
  items: number;
  durationSeconds: number;
  longestSeconds: number;
}

export interface ResourceStatus {
  kind: string;
  name: string;
  id: string;
  role: string;
  shared?: boolean;
  status?: string;
  attributes?: Record<string, unknown>;
}

export interface Sample {
  time: string;
  counts: Record<string, number> | null;
}

export interface Told {
  time: string;
  type: string;
  reason: string;
  message: string;
}

export interface Topology {
  generation: number;
  standingBy?: boolean;
  groups: Group[] | null;
  nodes: Node[] | null;
  edges: Edge[] | null;
  hidden?: number;
  drivers: string[] | null;
  kinds: string[] | null;
}

export interface WantStatus {
  kind: string;
  role: string;
}

export interface WatchReport {
  name: string;
  synced: boolean;
  objects: number;
  error?: string;
}
