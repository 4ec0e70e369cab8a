import { render } from "preact";

import "./styles/base.css";
import "./styles/fleet.css";
import "./styles/job.css";
import "./styles/goodput.css";
import "uplot/dist/uPlot.min.css";
import "./styles/print.css";
import { App } from "./views/app";

const page = document.getElementById("page");
// In a task of its own, beside that which reads this script: neither keeps the browser from answering for long.
if (page) setTimeout(() => render(<App />, page));
