import { docsLink } from "../model/routes";
import { helpFor } from "../model/reasons";
import { Inlines } from "./doc-text";

/** What a reason means and what to do, in the documentation's words, with a link to the rest; nothing when unknown. */
export function ReasonHelp({ reason }: { reason: string | undefined }) {
  const help = helpFor(reason);
  if (!help) return null;
  const { meaning, advice } = help;
  return (
    <p class="help">
      {meaning.length > 0 && (
        <>
          It means: <Inlines of={meaning} />.{" "}
        </>
      )}
      {advice.length > 0 && (
        <>
          What to do: <Inlines of={advice} />.{" "}
        </>
      )}
      <a href={docsLink({ ...help, reason })}>More about {reason}</a>
    </p>
  );
}
