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
    byThread.set(pid, [...(byThread.get(pid) ?? []), { cpuMs: (tdur ?? dur) / 1000, wallMs: dur / 1000 }]);
  }
  // The page's process is that which has done most.
  const sum = (tasks) => tasks.reduce((all, { cpuMs }) => all + cpuMs, 0);
  const [tasks = []] = [...byThread.values()].sort((one, other) => sum(other) - sum(one));
  const longest = (of) => Math.round(Math.max(0, ...tasks.map((task) => task[of])));
  return {
    tasks: tasks.length,
    longestCpuMs: longest("cpuMs"),
    longestWallMs: longest("wallMs"),
    over50CpuMs: tasks.filter(({ cpuMs }) => cpuMs > 50).length,
    over50WallMs: tasks.filter(({ wallMs }) => wallMs > 50).length,
  };
}
