import { Component, type ReactNode } from "react";

interface State {
  message: string | null;
}

/** A defect of the page must not look like lost work. */
export class ErrorBoundary extends Component<{ children: ReactNode }, State> {
  override state: State = { message: null };

  static getDerivedStateFromError(error: unknown): State {
    return { message: error instanceof Error ? error.message : String(error) };
  }

  override render(): ReactNode {
    if (this.state.message === null) return this.props.children;
    return (
      <main className="crash" role="alert" data-testid="error-banner">
        <h1>The page stopped working</h1>
        <p>Your sessions are safe: they are kept by the server, not by this page.</p>
        <pre>{this.state.message}</pre>
        <button type="button" className="button primary" onClick={() => location.reload()}>
          Reload the page
        </button>
      </main>
    );
  }
}
