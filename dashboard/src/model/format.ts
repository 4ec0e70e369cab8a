/** Numbers, durations and times as people read them. */

const LOCALE = "en-GB"; // the page is in English: 1,234.5, 22 Nov, 15:40
const MINUTE = 60;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** "12,345", as LOCALE has it. The browser's own formatter takes 10 to 70 ms when it is first made. */
export function count(value: number): string {
  if (!Number.isFinite(value)) return String(value);
  return BigInt(Math.round(value))
    .toString()
    .replace(/\B(?=(\d{3})+$)/g, ",");
}

/** A value of a metric: four significant digits, exponents for very large and very small ones. */
export function metricValue(text: string | number): string {
  const value = typeof text === "number" ? text : Number(text);
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e7 || size < 1e-3) return minus(value.toExponential(size < 1e-3 ? 2 : 3).replace("e+", "e"));
  if (size >= 1000) return minus(count(value));
  return minus(String(Number(value.toPrecision(4))));
}

/** All digits of a value, as the shortest text that means the same number. */
export function exactValue(value: number): string {
  return Number.isFinite(value) ? minus(String(value).replace("e+", "e")) : metricValue(value);
}

/** Ticks of an axis, with as many digits as two neighbours, `step` apart, need to differ. Without `step`: four. */
export function tickTexts(ticks: readonly (number | null)[], step: number | undefined): string[] {
  const told = (tell: (tick: number) => string) => ticks.map((tick) => (tick === null ? "" : minus(tell(tick))));
  if (!step) return told(metricValue);
  const [digits = "", power = "0"] = step.toExponential(2).split("e");
  const finest = Number(power) - (digits.startsWith("2.5") ? 1 : 0); // power of ten of the last digit
  const places = (tick: number) => Math.max(0, Math.min(17, Math.floor(Math.log10(Math.abs(tick))) - finest));
  const powers = told((tick) => (tick === 0 ? "0" : tick.toExponential(places(tick)).replace("e+", "e")));
  const largest = Math.max(0, ...ticks.map((tick) => Math.abs(tick ?? 0)));
  if (largest >= 1e15 || finest < -20) return powers;
  const plain = told((tick) => grouped(tick.toFixed(Math.max(0, -finest))));
  const isUsual = largest < 1e7 && largest >= 1e-3;
  const longest = (texts: readonly string[]) => Math.max(0, ...texts.map((text) => text.length));
  return isUsual || longest(plain) <= longest(powers) ? plain : powers;
}

const grouped = (text: string) => text.replace(/^(-?\d+)/, (whole) => whole.replace(/\B(?=(\d{3})+$)/g, ","));

const minus = (text: string) => text.replaceAll("-", "−");

/** "2 h 10 min": two units at most, "0 s" for less than a second. */
export function duration(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < MINUTE) return `${whole} s`;
  if (whole < 10 * MINUTE) return two(Math.floor(whole / MINUTE), "min", whole % MINUTE, "s");
  const minutes = Math.round(whole / MINUTE);
  if (minutes < 60) return `${minutes} min`;
  if (whole < DAY) return two(Math.floor(minutes / 60), "h", minutes % 60, "min");
  const hours = Math.round(whole / HOUR);
  return hours < 24 * 100 ? two(Math.floor(hours / 24), "d", hours % 24, "h") : `${Math.round(hours / 24)} d`;
}

function two(first: number, unit: string, second: number, smaller: string): string {
  return second === 0 ? `${first} ${unit}` : `${first} ${unit} ${second} ${smaller}`;
}

/** The largest unit only, for narrow columns: "3s", "12m", "5h", "2d". */
export function age(seconds: number): string {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 2 * MINUTE) return `${whole}s`;
  if (whole < 2 * HOUR) return `${Math.floor(whole / MINUTE)}m`;
  if (whole < 2 * DAY) return `${Math.floor(whole / HOUR)}h`;
  return `${Math.floor(whole / DAY)}d`;
}

export function rate(perSecond: number): string {
  if (perSecond === 0) return "0/s";
  if (perSecond >= 1) return `${short(perSecond)}/s`;
  if (perSecond * MINUTE >= 1) return `${short(perSecond * MINUTE)}/min`;
  return `${short(perSecond * HOUR)}/h`;
}

const short = (value: number) => (value >= 100 ? count(value) : String(Number(value.toPrecision(2))));

export const epochs = (value: number) => String(Number(value.toFixed(value < 10 ? 2 : 1)));

/** "41 h", "3.2 h", "12 min" of accelerators. */
export function acceleratorTime(seconds: number): string {
  if (seconds < HOUR) return duration(seconds);
  const hours = seconds / HOUR;
  return `${hours < 10 ? Number(hours.toFixed(1)) : count(hours)} h`;
}

/** An instant in the chosen time zone: the time alone today, with the day else, with the year in another. */
export function clock(instant: number, zone: string | undefined, now: number): string {
  if (Number.isNaN(instant)) return "";
  const at = parts(instant, zone);
  const today = parts(now, zone);
  const time = `${at.hour}:${at.minute}`;
  if (at.date === today.date) return time;
  const day = `${at.day} ${at.month}`;
  return at.year === today.year ? `${day} ${time}` : `${day} ${at.year}`;
}

/** Ticks of an axis of time, `stepS` apart (seconds): days, or times of which the first and each midnight tell the day. */
export function timeTicks(ticks: readonly (number | null)[], stepS: number, zone: string | undefined): string[] {
  let day = "";
  return ticks.map((tick) => {
    if (tick === null) return "";
    const at = parts(tick * 1000, zone);
    const date = `${at.day} ${at.month}`;
    const isNew = date !== day;
    day = date;
    if (stepS >= DAY || (isNew && `${at.hour}${at.minute}` === "0000")) return date;
    const seconds = stepS < MINUTE ? `:${String(Math.floor(tick) % 60).padStart(2, "0")}` : "";
    return `${isNew ? `${date} ` : ""}${at.hour}:${at.minute}${seconds}`;
  });
}

/** With seconds and the zone's name, for where it is looked at closely. */
export function fullTime(instant: number, zone: string | undefined): string {
  if (Number.isNaN(instant)) return "";
  return formatter(zone, "full", { dateStyle: "medium", timeStyle: "long" }).format(instant);
}

export function isSameDay(one: number, other: number, zone: string | undefined): boolean {
  return !Number.isNaN(one) && parts(one, zone).date === parts(other, zone).date;
}

const formatters = new Map<string, Intl.DateTimeFormat>();

function formatter(zone: string | undefined, name: string, options: Intl.DateTimeFormatOptions): Intl.DateTimeFormat {
  const key = `${name} ${zone ?? ""}`;
  let found = formatters.get(key);
  if (!found) {
    found = new Intl.DateTimeFormat(LOCALE, zone === undefined ? options : { ...options, timeZone: zone });
    formatters.set(key, found);
  }
  return found;
}

interface Parts {
  readonly year: string;
  readonly month: string;
  readonly day: string;
  readonly hour: string;
  readonly minute: string;
  readonly date: string;
}

const MOST_KNOWN = 4000;
const known = new Map<string, Parts>(); // the browser takes 10 us for each, and rows are drawn again and again

function parts(instant: number, zone: string | undefined): Parts {
  const key = `${zone ?? ""} ${Math.floor(instant / 60_000)}`;
  let found = known.get(key);
  if (!found) {
    if (known.size >= MOST_KNOWN) known.clear();
    found = readParts(instant, zone);
    known.set(key, found);
  }
  return found;
}

function readParts(instant: number, zone: string | undefined): Parts {
  const shown = formatter(zone, "parts", {
    year: "numeric",
    month: "short",
    day: "numeric",
    hour: "2-digit",
    minute: "2-digit",
    hourCycle: "h23",
  }).formatToParts(instant);
  const of = (type: string) => shown.find((part) => part.type === type)?.value ?? "";
  const [year, month, day] = [of("year"), of("month"), of("day")];
  return { year, month, day, hour: of("hour"), minute: of("minute"), date: `${year} ${month} ${day}` };
}
