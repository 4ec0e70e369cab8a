/** What time was spent on, as one bar from left to right. What was wasted is hatched: colours alone do not tell it. */

import { useId } from "preact/hooks";

import { percentage, type Kind, type Part } from "../model/goodput";

interface Props {
  parts: readonly Part[];
  /** What it is of, for those who do not see it. */
  label: string;
  tell: (seconds: number) => string;
  height?: number;
}

const HATCH = 5;

function Hatch({ id }: { id: string }) {
  return (
    <defs>
      <pattern id={id} width={HATCH} height={HATCH} patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
        <rect class="hatch" width={HATCH / 2.5} height={HATCH} />
      </pattern>
    </defs>
  );
}

export function SpentBar({ parts, label, tell, height = 22 }: Props) {
  const id = useId();
  const told = parts.map(({ kind, seconds, share }) => `${kind.name} ${percentage(100 * share)}, ${tell(seconds)}`);
  let from = 0;
  return (
    <svg class="spent" role="img" aria-label={`${label}: ${told.join("; ") || "nothing yet"}`} height={height}>
      <Hatch id={id} />
      {parts.map(({ kind, share }, at) => {
        const place = { x: `${100 * from}%`, width: `${100 * share}%`, height };
        from += share;
        return (
          <g key={kind.key}>
            <title>{told[at]}</title>
            <rect class={`kind-${kind.key}`} {...place} />
            {kind.isWaste && <rect fill={`url(#${id})`} {...place} />}
          </g>
        );
      })}
    </svg>
  );
}

export function KindSwatch({ kind }: { kind: Kind }) {
  const id = useId();
  return (
    <svg class="spent swatch" width="14" height="14" aria-hidden="true">
      <Hatch id={id} />
      <rect class={`kind-${kind.key}`} width="14" height="14" />
      {kind.isWaste && <rect fill={`url(#${id})`} width="14" height="14" />}
    </svg>
  );
}
