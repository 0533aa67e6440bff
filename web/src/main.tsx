import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { Page } from "./components/Page";
import { ErrorBoundary } from "./components/ErrorBoundary";
import { App, AppContext } from "./state/app";
import { probe } from "./state/probe";
import "./styles/tokens.css";
import "./styles/base.css";
import "./styles/layout.css";
import "./styles/sessions.css";
import "./styles/conversation.css";
import "./styles/items.css";
import "./styles/tools.css";
import "./styles/composer.css";
import "./styles/acting.css";
import "./styles/dialogs.css";
import "./styles/inspect.css";
import "./styles/grants.css";

probe.install();
const app = new App();
app.start();

const root = document.getElementById("root");
if (root === null) throw new Error("the page has no root element");
createRoot(root).render(
  <StrictMode>
    <ErrorBoundary>
      <AppContext value={app}>
        <Page />
      </AppContext>
    </ErrorBoundary>
  </StrictMode>,
);
