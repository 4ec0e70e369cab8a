/** A button and what it opens; closed by Escape, by a click beside it, and when the focus leaves it. */

import type { ComponentChildren } from "preact";
import { useEffect, useId, useLayoutEffect, useRef, useState } from "preact/hooks";

interface Props {
  label: ComponentChildren;
  class?: string;
  side?: "left" | "right";
  isChosen?: boolean;
  children: ComponentChildren;
}

const EDGE = 8; // pixels

/** What lies to the left of the window cannot be scrolled to. */
function keepInside(sheet: HTMLElement): void {
  sheet.style.translate = "";
  const { left, right } = sheet.getBoundingClientRect();
  const over = Math.min(0, document.documentElement.clientWidth - EDGE - right);
  const shift = left + over < EDGE ? EDGE - left : over;
  if (shift !== 0) sheet.style.translate = `${shift}px`;
}

export function Popover({ label, class: name, side = "left", isChosen, children }: Props) {
  const [isOpen, setOpen] = useState(false);
  const root = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  const sheet = useRef<HTMLDivElement>(null);
  const id = useId();
  useEffect(() => {
    if (!isOpen) return;
    const press = (event: PointerEvent) => {
      if (!root.current?.contains(event.target as Node)) setOpen(false);
    };
    document.addEventListener("pointerdown", press);
    return () => document.removeEventListener("pointerdown", press);
  }, [isOpen]);
  useLayoutEffect(() => {
    if (isOpen && sheet.current) keepInside(sheet.current);
  }, [isOpen]);
  const key = (event: KeyboardEvent) => {
    if (event.key !== "Escape" || !isOpen) return;
    event.stopPropagation();
    setOpen(false);
    button.current?.focus();
  };
  const blur = (event: FocusEvent) => {
    if (event.relatedTarget && !root.current?.contains(event.relatedTarget as Node)) setOpen(false);
  };
  return (
    <div class={`popover ${name ?? ""}`} ref={root} onKeyDown={key} onFocusOut={blur}>
      <button
        type="button"
        ref={button}
        class={`button ${isChosen ? "chosen" : ""}`}
        aria-expanded={isOpen}
        aria-controls={id}
        onClick={() => setOpen(!isOpen)}
      >
        {label} <span aria-hidden="true">▾</span>
      </button>
      <div id={id} ref={sheet} class={`sheet ${side}`} hidden={!isOpen}>
        {isOpen && children}
      </div>
    </div>
  );
}
