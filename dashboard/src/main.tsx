import { render } from "preact";

import "./styles/base.css";
import "./styles/fleet.css";
import "./styles/job.css";
import "uplot/dist/uPlot.min.css";
import { App } from "./views/app";

const page = document.getElementById("page");
if (page) render(<App />, page);
