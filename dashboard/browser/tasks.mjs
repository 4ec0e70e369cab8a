// The longest tasks of a page, in milliseconds of its main thread's own CPU time: of a machine that does other things
// too, the wall's clock tells what those take.

const CATEGORIES = ["disabled-by-default-devtools.timeline", "toplevel", "devtools.timeline", "__metadata"];

export const startTrace = (browser, page) => browser.startTracing(page, { categories: CATEGORIES });

export async function stopTrace(browser) {
  const { traceEvents } = JSON.parse((await browser.stopTracing()).toString());
  const isTask = ({ name, ph }) => ph === "X" && name === "RunTask";
  const mains = traceEvents
    .filter(({ name, args }) => name === "thread_name" && args?.name === "CrRendererMain")
    .map(({ pid, tid }) => `${pid} ${tid}`);
  const byThread = new Map();
  for (const { pid, tid, tdur, dur, ...rest } of traceEvents) {
    if (!isTask(rest) || !mains.includes(`${pid} ${tid}`)) continue;
    const task = { cpuMs: (tdur ?? dur) / 1000, wallMs: dur / 1000, ts: rest.ts, dur, pid, tid };
    byThread.set(pid, [...(byThread.get(pid) ?? []), task]);
  }
  // The page's process is that which has done most.
  const sum = (tasks) => tasks.reduce((all, { cpuMs }) => all + cpuMs, 0);
  const [tasks = []] = [...byThread.values()].sort((one, other) => sum(other) - sum(one));
  const longest = (of) => Math.round(Math.max(0, ...tasks.map((task) => task[of])));
  const most = tasks.reduce((one, other) => (other.cpuMs > one.cpuMs ? other : one), { cpuMs: 0 });
  return {
    inLongest: partsOf(most, traceEvents),
    tasks: tasks.length,
    longestCpuMs: longest("cpuMs"),
    longestWallMs: longest("wallMs"),
    over50CpuMs: tasks.filter(({ cpuMs }) => cpuMs > 50).length,
    over50WallMs: tasks.filter(({ wallMs }) => wallMs > 50).length,
  };
}

/** What the longest task did, the longest first: such as "FunctionCall 30 take index.js". */
function partsOf({ ts, dur, pid, tid }, events) {
  return events
    .filter((one) => one.ph === "X" && one.name !== "RunTask" && one.pid === pid && one.tid === tid)
    .filter((one) => one.ts >= ts && one.ts + one.dur <= ts + dur && one.dur > 2000)
    .sort((one, other) => other.dur - one.dur)
    .slice(0, 8)
    .map(({ name, dur: us, tdur, args }) => {
      const { functionName, url } = args?.data ?? {};
      const where = [functionName, url?.split("/").pop()].filter(Boolean).join(" ");
      return `${name} ${Math.round((tdur ?? us) / 1000)} ${where}`.trim();
    });
}
