import type { Problem } from "./types";

/** What the page shows when something fails: a sentence, and what to do about it. */
export class ApiError extends Error {
  readonly status: number;
  readonly code: string;
  readonly hint: string | undefined;

  constructor(init: { status: number; code: string; detail: string; hint?: string | undefined }) {
    super(init.detail);
    this.name = "ApiError";
    this.status = init.status;
    this.code = init.code;
    this.hint = init.hint;
  }
}

export interface HumanError {
  message: string;
  hint: string | undefined;
  code: string;
}

export const unreachable = (): ApiError =>
  new ApiError({
    status: 0,
    code: "unreachable",
    detail: "The Threadline server does not answer.",
    hint: "Start it again with: threadline serve. Everything already shown is saved on disk.",
  });

const fallbackByStatus: Record<number, string> = {
  401: "This page is not signed in to the server.",
  403: "The server refused this request.",
  404: "The server does not know this.",
  409: "Something changed on the server in the meantime.",
  413: "The request is too large for the server.",
};

export async function errorFromResponse(response: Response): Promise<ApiError> {
  let problem: Problem = {};
  try {
    const parsed: unknown = await response.json();
    if (parsed !== null && typeof parsed === "object") problem = parsed as Problem;
  } catch {
    // A proxy or a crash can answer with anything; the status alone must do then.
  }
  return errorFromProblem(problem, response.status);
}

export function errorFromProblem(problem: Problem, status: number): ApiError {
  const detail =
    textOf(problem.detail) ??
    textOf(problem.title) ??
    fallbackByStatus[status] ??
    `The server answered with status ${status}.`;
  const hint =
    textOf(problem.hint) ??
    (status === 401 ? "Open the address, with its token, that `threadline serve` printed." : undefined);
  return new ApiError({ status, code: textOf(problem.code) ?? `http_${status}`, detail, hint });
}

/** The last message of an event stream that failed. */
export function errorFromMessage(data: string): ApiError {
  const problem = JSON.parse(data) as Problem & { message?: string };
  const detail = problem.message ?? problem.detail;
  return errorFromProblem(detail === undefined ? problem : { ...problem, detail }, 200);
}

function textOf(value: unknown): string | undefined {
  return typeof value === "string" && value.trim() !== "" ? value : undefined;
}

export function toHuman(error: unknown): HumanError {
  if (error instanceof ApiError) {
    const hint = error.hint === undefined ? undefined : sentence(error.hint);
    return { message: sentence(error.message), hint, code: error.code };
  }
  if (error instanceof TypeError) return toHuman(unreachable());
  const message = error instanceof Error ? error.message : String(error);
  return { message: sentence(message), hint: undefined, code: "unexpected" };
}

/** Server messages are lowercase fragments by convention; a person reads a sentence. */
export function sentence(text: string): string {
  const trimmed = text.trim();
  if (trimmed === "") return "Something went wrong.";
  const capital = trimmed.charAt(0).toUpperCase() + trimmed.slice(1);
  return /[.!?:)]$/.test(capital) ? capital : `${capital}.`;
}
