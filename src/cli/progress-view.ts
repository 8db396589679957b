/**
 * Shows slow steps of environments, an image pull above all, on stderr: a bar on a terminal, a line per step and
 * quarter elsewhere. Quick steps show nothing, so that a command's stderr stays its own.
 */
import type { SingleBar } from "cli-progress";

export interface ProgressStep {
  readonly environment: string;
  readonly message: string;
  /** Between 0 and 1, when it is known. */
  readonly fraction?: number;
}

/** Dispose it, and the terminal's line is free again. */
export interface ProgressView extends Disposable {
  show(step: ProgressStep): void;
  /** What was slow is over; the next step starts anew. */
  clear(): void;
}

export function createProgressView(stream: NodeJS.WriteStream): ProgressView {
  return stream.isTTY ? createBar(stream) : createLines(stream);
}

/** Steps that follow each other for less than this are quick, milliseconds. */
const QUICK_MS = 3_000;

function createLines(stream: NodeJS.WriteStream): ProgressView {
  let startedAt: number | null = null;
  let shown = "";
  const clear = (): void => {
    startedAt = null;
    shown = "";
  };
  return {
    show({ environment, message, fraction }) {
      startedAt ??= performance.now();
      if (performance.now() - startedAt < QUICK_MS) return;
      const quarter = fraction === undefined ? "" : ` ${Math.floor(fraction * 4) * 25} %`;
      const line = `moor: ${environment}: ${message}${quarter}`;
      if (shown === line) return;
      shown = line;
      stream.write(`${line}\n`);
    },
    clear,
    [Symbol.dispose]: clear,
  };
}

function createBar(stream: NodeJS.WriteStream): ProgressView {
  let bar: SingleBar | null = null;
  let latest: ProgressStep | null = null;
  let isLoaded = false;

  const load = async (): Promise<void> => {
    const { default: progress } = await import("cli-progress");
    bar = new progress.SingleBar(
      {
        stream,
        format: "{environment}: {message} {bar} {percentage} %",
        clearOnComplete: true,
        hideCursor: true,
      },
      progress.Presets.shades_classic,
    );
    if (latest) draw(latest);
  };
  const draw = ({ environment, message, fraction = 0 }: ProgressStep): void => {
    if (bar?.isActive) bar.update(Math.round(fraction * 100), { environment, message });
    else bar?.start(100, Math.round(fraction * 100), { environment, message });
  };
  const clear = (): void => {
    latest = null;
    if (bar?.isActive) bar.stop();
  };
  return {
    show(step) {
      // A step without a measure belongs to a bar that is there, or is not worth one.
      if (step.fraction === undefined && latest === null) return;
      latest = step;
      if (isLoaded) draw(step);
      else void load();
      isLoaded = true;
    },
    clear,
    [Symbol.dispose]: clear,
  };
}
