/** Curves of the jobs that one is compared with; read anew now and then, for they may still train. What was read stays
 * when that fails. */

import type { Address } from "../api/address";
import { serverNow } from "../api/clock";
import { getHistory, getJob, type JobRef } from "../api/requests";
import type { ProgressStatus } from "../api/types";
import { fromHistory, NOTHING, type Curves } from "./series";

export interface ComparedJob {
  readonly ref: JobRef;
  readonly curves: Curves;
  readonly error: Error | undefined;
  /** When its curves were read, by the server's clock. */
  readonly asOf: number;
  /** What its document says, where that can be read. */
  readonly status: ProgressStatus | undefined;
}

const POINTS = 600;
const USUAL = "trainjobs";

/** Told apart from those of all other jobs; that of a TrainJob without its resource. */
export const nameOf = ({ plural, namespace, name }: JobRef) =>
  plural === USUAL ? `${namespace}/${name}` : `${plural}/${namespace}/${name}`;

/** `text` as nameOf() writes it. */
export function refOf(text: string): JobRef | undefined {
  const parts = text.split("/");
  const [plural, namespace, name, ...rest] = parts.length === 2 ? [USUAL, ...parts] : parts;
  return plural && namespace && name && rest.length === 0 ? { plural, namespace, name } : undefined;
}

export async function readCompared(
  address: Address,
  refs: readonly JobRef[],
  known: readonly ComparedJob[],
  signal: AbortSignal,
): Promise<ComparedJob[]> {
  const read = async (ref: JobRef): Promise<ComparedJob> => {
    try {
      const [history, document] = await Promise.all([
        getHistory(address, ref, { maxPoints: POINTS }, signal),
        getJob(address, ref, signal).catch(() => undefined),
      ]);
      return { ref, curves: fromHistory(history), error: undefined, asOf: serverNow(), status: document?.status };
    } catch (error) {
      const before = known.find((one) => nameOf(one.ref) === nameOf(ref));
      return { ref, curves: NOTHING, asOf: serverNow(), status: undefined, ...before, error: error as Error };
    }
  };
  return Promise.all(refs.map(read));
}
