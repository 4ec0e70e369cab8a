/** Curves of the jobs that one is compared with; read anew now and then, for they may still train. */

import type { Address } from "../api/address";
import { serverNow } from "../api/clock";
import { getHistory, type JobRef } from "../api/requests";
import { fromHistory, NOTHING, type Curves } from "./series";

export interface ComparedJob {
  readonly ref: JobRef;
  readonly curves: Curves;
  readonly error: Error | undefined;
  /** When it was read, by the server's clock. */
  readonly asOf: number;
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
  signal: AbortSignal,
): Promise<ComparedJob[]> {
  const read = async (ref: JobRef): Promise<ComparedJob> => {
    try {
      const history = await getHistory(address, ref, { maxPoints: POINTS }, signal);
      return { ref, curves: fromHistory(history), error: undefined, asOf: serverNow() };
    } catch (error) {
      return { ref, curves: NOTHING, error: error as Error, asOf: serverNow() };
    }
  };
  return Promise.all(refs.map(read));
}
