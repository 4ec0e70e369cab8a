// The page with made-up jobs, to look at: npm run fixture [-- NUMBER_OF_JOBS]. 40 jobs change every second.
import { runnerImport } from "vite";

const { module } = await runnerImport("./browser/fixture.ts");
const jobs = Number(process.argv[2] ?? 300);
const fixture = await module.Fixture.start({ jobs, port: Number(process.argv[3] ?? 0) });
console.log(fixture.page());
setInterval(() => {
  const training = fixture.jobs.filter((job) => job.isTraining);
  for (let n = 0; n < 40; n++) fixture.change(training[Math.floor(Math.random() * training.length)]);
}, 1000);
