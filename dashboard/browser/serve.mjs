// The page with made-up jobs, to look at: npm run fixture [-- JOBS [PORT [CHANGES_A_SECOND]]].
import { runnerImport } from "vite";

const { module } = await runnerImport("./browser/fixture.ts");
const jobs = Number(process.argv[2] ?? 300);
const changes = Number(process.argv[4] ?? 40);
const fixture = await module.Fixture.start({ jobs, port: Number(process.argv[3] ?? 0) });
console.log(fixture.page());
setInterval(() => {
  const training = fixture.jobs.filter((job) => job.isTraining);
  for (let n = 0; n < changes / 10; n++) fixture.change(training[Math.floor(Math.random() * training.length)]);
}, 100);
