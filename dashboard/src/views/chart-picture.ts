/** A chart as a PNG: what is on its canvas, with its name, its legend and the time below. */

import { fileName, save } from "./save";

const LINE = 18; // pixels of the page, as all below
const EDGE = 12;

interface Told {
  readonly jobs: string;
  readonly axis: string;
  /** Of the smoothing; 0 is none. */
  readonly weight: number;
  readonly asOf: number;
}

export async function savePicture(figure: HTMLElement, { jobs, axis, weight, asOf }: Told): Promise<void> {
  const chart = figure.querySelector("canvas");
  if (!chart) return;
  const scale = devicePixelRatio;
  const title = figure.querySelector("h3")?.textContent ?? "";
  const entries = [...figure.querySelectorAll<HTMLElement>(".legend li")].map((entry) => ({
    text: [...entry.children]
      .map((part) => part.textContent?.trim())
      .filter(Boolean)
      .join("  "),
    colour: getComputedStyle(entry.querySelector(".swatch") ?? entry).borderTopColor,
  }));
  const picture = document.createElement("canvas");
  const height = (2 + entries.length) * LINE + 2 * EDGE;
  [picture.width, picture.height] = [chart.width, chart.height + height * scale];
  const pen = picture.getContext("2d");
  if (!pen) return;
  const { backgroundColor, color } = getComputedStyle(figure);
  pen.fillStyle = backgroundColor;
  pen.fillRect(0, 0, picture.width, picture.height);
  pen.drawImage(chart, 0, (LINE + EDGE) * scale);
  pen.scale(scale, scale);
  const write = (text: string, x: number, y: number, weight = "") => {
    pen.font = `${weight} 12px system-ui, sans-serif`;
    pen.fillText(text, x, y, picture.width / scale - x - EDGE);
  };
  pen.fillStyle = color;
  write(title, EDGE, LINE, "bold");
  let y = LINE + EDGE + chart.height / scale + LINE;
  for (const { text, colour } of entries) {
    pen.fillStyle = colour;
    pen.fillRect(EDGE, y - 5, 16, 3);
    pen.fillStyle = color;
    write(text, EDGE + 24, y);
    y += LINE;
  }
  const how = `by ${axis.toLowerCase()}${weight > 0 ? `, smoothed by ${weight}` : ""}`;
  write(`${jobs} · ${how} · as of ${new Date(asOf).toISOString().slice(0, 19)}Z`, EDGE, y);
  const blob = await new Promise<Blob | null>((resolve) => picture.toBlob(resolve, "image/png"));
  if (blob) save(blob, fileName(title, "png"), "image/png");
}
