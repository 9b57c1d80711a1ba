/** What an engine can do, out of what it says about itself: storage, limits, trust tiers. What it can't enforce is refused by name. */
import * as z from 'zod';
import { PetriError } from '../../../protocol/errors';
import type { EngineReport } from '../../../protocol/operations';
import type { NetworkMode, TrustTier } from '../../../protocol/records';
import { visible } from '../../../protocol/text';
import type { BoxSpec } from '../engine';
import type { Client } from './client';

const runtime = z.object({
  path: z.string().nullish(),
  runtimeArgs: z.array(z.string()).nullish(),
  runtimeType: z.string().nullish(),
});
/** Of the engine's info what we use; engines leave out what they don't know. */
const info = z.object({
  Name: z.string().nullish(),
  OperatingSystem: z.string().nullish(),
  OSType: z.string().nullish(),
  Driver: z.string().nullish(),
  DriverStatus: z.array(z.array(z.string())).nullish(),
  Runtimes: z.record(z.string(), runtime).nullish(),
  DefaultRuntime: z.string().nullish(),
  InitBinary: z.string().nullish(),
  MemoryLimit: z.boolean().nullish(),
  SwapLimit: z.boolean().nullish(),
  CpuCfsQuota: z.boolean().nullish(),
  CPUCfsQuota: z.boolean().nullish(),
  PidsLimit: z.boolean().nullish(),
  CgroupDriver: z.string().nullish(),
  CgroupVersion: z.string().nullish(),
  DockerRootDir: z.string().nullish(),
  SecurityOptions: z.array(z.string()).nullish(),
});
const versionInfo = z.object({
  Version: z.string().nullish(),
  ApiVersion: z.string(),
  Components: z.array(z.object({ Name: z.string() })).nullish(),
});

type Runtime = z.infer<typeof runtime> & { name: string };

export interface Capabilities {
  name: string;
  version: string;
  podman: boolean;
  /** Layers can be loaded alone, naming the ones below that are there (Docker's own image store). */
  loadsLayers: boolean;
  storageDriver: string;
  /** The engine has an init process for boxes. Some only say so when they are asked for it: then this is corrected. */
  hasInit: boolean;
  memory: boolean;
  cpus: boolean;
  pids: boolean;
  swap: boolean;
  rootless: boolean;
  /** Name of the API's version as a number: 1.41 is 41. */
  api: number;
  runtimes: Runtime[];
  defaultRuntime: string;
}

export async function readCapabilities(client: Client): Promise<Capabilities> {
  const [told, version] = await client.call('asking the engine what it can do', async (docker) =>
    Promise.all([docker.info() as Promise<unknown>, docker.version() as Promise<unknown>]),
  );
  const i = info.safeParse(told);
  const v = versionInfo.safeParse(version);
  if (!i.success || !v.success) {
    throw new PetriError(
      'engine-failed',
      `What answers at ${client.endpoint.text} is no container engine that Petri knows.`,
      {
        hint: 'Petri works with Docker and engines that serve its API, as Podman does.',
      },
    );
  }
  const data = i.data;
  if (data.OSType && data.OSType !== 'linux') {
    throw new PetriError(
      'unsupported',
      `The engine at ${client.endpoint.text} runs ${visible(data.OSType, true)} containers.`,
      {
        hint: 'Switch it to Linux containers.',
      },
    );
  }
  const podman = (v.data.Components ?? []).some((c) => /podman/i.test(c.Name));
  const snapshotter = (data.DriverStatus ?? []).some((pair) =>
    pair.some((text) => text.startsWith('io.containerd.snapshotter')),
  );
  const defaultRuntime = data.DefaultRuntime ?? 'runc';
  // Podman lists every runtime that it has heard of, there or not, and what a request names is not what it takes.
  const runtimes = Object.entries(data.Runtimes ?? {}).map(([name, r]) => ({ name, ...r }));
  const noCgroups = data.CgroupDriver === 'none';
  return {
    name: podman ? 'Podman' : data.OperatingSystem === 'Docker Desktop' ? 'Docker Desktop' : 'Docker',
    version: visible(v.data.Version ?? '', true),
    podman,
    loadsLayers: !podman && !snapshotter,
    storageDriver: visible(data.Driver ?? 'unknown', true),
    hasInit: podman ? true : (data.InitBinary ?? '') !== '',
    memory: !noCgroups && data.MemoryLimit !== false,
    cpus: !noCgroups && (data.CpuCfsQuota ?? data.CPUCfsQuota) !== false,
    pids: !noCgroups && data.PidsLimit !== false,
    swap: data.SwapLimit !== false,
    rootless: (data.SecurityOptions ?? []).some((o) => o.includes('rootless')),
    api: Number(/^\d+\.(\d+)$/.exec(v.data.ApiVersion)?.[1] ?? 0),
    runtimes: runtimes.filter((r) => !podman || r.name === defaultRuntime),
    defaultRuntime,
  };
}

const isGvisor = (r: Runtime): boolean => /runsc|gvisor/i.test(`${r.name} ${r.path ?? ''} ${r.runtimeType ?? ''}`);
const isMicrovm = (r: Runtime): boolean =>
  /kata|firecracker|cloud-hypervisor/i.test(`${r.name} ${r.path ?? ''} ${r.runtimeType ?? ''}`);
const args = (r: Runtime): string[] => r.runtimeArgs ?? [];
/** The runtime was told to leave cgroups alone: no limit holds. */
const ignoresLimits = (r: Runtime): boolean => args(r).some((a) => /^-?-ignore-cgroups(=true)?$/.test(a));
/** The runtime gives no network, whatever the container's says. */
const hasNoNetwork = (r: Runtime): boolean => args(r).some((a) => /^-?-network=none$/.test(a));

export function reportOf(capabilities: Capabilities, client: Client): EngineReport {
  const c = capabilities;
  const tiers: TrustTier[] = [];
  if (usual(c)) tiers.push('container');
  if (c.runtimes.some(isGvisor)) tiers.push('gvisor');
  if (c.runtimes.some(isMicrovm)) tiers.push('microvm');
  return {
    kind: 'docker',
    name: c.name,
    endpoint: client.endpoint.text,
    foundBy: client.endpoint.foundBy,
    version: c.version,
    storageDriver: c.storageDriver,
    tiers,
    limits: {
      cpus: c.cpus ? 'hard' : 'missing',
      memory: !c.memory ? 'missing' : c.swap ? 'hard' : 'soft',
      pids: c.pids ? 'hard' : 'missing',
      timeout: 'hard',
      // Only some drivers on some file systems can hold a container to a size; it is never asked for.
      disk: 'missing',
    },
  };
}

/** The runtime that `container` means: the engine's default unless that is one of another tier. */
function usual(c: Capabilities): Runtime | undefined {
  const plain = (r: Runtime): boolean => !isGvisor(r) && !isMicrovm(r);
  return (
    c.runtimes.find((r) => r.name === c.defaultRuntime && plain(r)) ??
    c.runtimes.find((r) => /^(runc|crun|youki)$/.test(r.name))
  );
}

/** The runtime for a box; undefined leaves it to the engine. Errors: unsupported, saying what is missing and how to get it. */
export function runtimeFor(
  c: Capabilities,
  spec: Pick<BoxSpec, 'tier' | 'network' | 'memoryBytes' | 'cpus' | 'pids'>,
): string | undefined {
  const wanted = { memory: spec.memoryBytes, cpus: spec.cpus, pids: spec.pids };
  for (const [name, value] of Object.entries(wanted)) {
    if (value !== undefined && !c[name as keyof typeof wanted]) {
      throw unsupported(`This engine can't enforce the limit \`${name}\`.`, limitHint(c), { limit: name });
    }
  }
  const found = runtimesOf(c, spec.tier);
  if (found === undefined) return undefined;
  const limited = Object.entries(wanted).find(([, value]) => value !== undefined)?.[0];
  const bound = found.filter((r) => limited === undefined || !ignoresLimits(r));
  if (bound.length === 0) {
    throw unsupported(
      `This engine can't enforce the limit \`${limited}\` in the tier \`${spec.tier}\`: its runtime is set to ignore cgroups.`,
      "Take `--ignore-cgroups` out of the runtime's arguments in daemon.json, or ask for no limits.",
      { limit: limited, tier: spec.tier },
    );
  }
  const networked = bound.filter((r) => fitsNetwork(r, spec.network));
  const best = networked[0];
  if (!best) {
    throw unsupported(
      `This engine has no network in the tier \`${spec.tier}\`: its runtime is set to have none.`,
      "Take `--network=none` out of the runtime's arguments in daemon.json, or use the network `none`.",
      { tier: spec.tier },
    );
  }
  return best.name;
}

function runtimesOf(c: Capabilities, tier: TrustTier): Runtime[] | undefined {
  if (tier === 'container') {
    const runtime = usual(c);
    // Engines that don't list their runtimes have one usual kind.
    if (!runtime && c.runtimes.length > 0)
      throw unsupported('This engine has no runtime of the tier `container`.', 'Install runc or crun.', { tier });
    return runtime && runtime.name !== c.defaultRuntime ? [runtime] : undefined;
  }
  if (tier === 'process')
    throw unsupported('A container engine has no tier `process`.', 'Ask for the tier `container`.', { tier });
  const found = c.runtimes.filter(tier === 'gvisor' ? isGvisor : isMicrovm);
  if (found.length === 0) {
    const name = tier === 'gvisor' ? 'gVisor (runsc)' : 'Kata Containers';
    throw unsupported(
      `This engine has no runtime of the tier \`${tier}\`.`,
      `Install ${name} and name it under "runtimes" in the engine's daemon.json.`,
      { tier },
    );
  }
  return found;
}

const fitsNetwork = (r: Runtime, network: NetworkMode): boolean => network === 'none' || !hasNoNetwork(r);

function limitHint(c: Capabilities): string {
  return c.rootless
    ? 'A rootless engine needs cgroup v2 with the controllers delegated to the user (systemd `Delegate=yes`).'
    : "Turn the controller on in the kernel of the engine's machine, or leave the limit out.";
}

function unsupported(message: string, hint: string, data: Record<string, unknown>): PetriError {
  return new PetriError('unsupported', message, { hint, data });
}
