import { Store } from "./store";

/** Sessions that were picked to be archived or deleted together. */
export class Selection {
  readonly ids = new Store<ReadonlySet<string>>(new Set());

  toggle(id: string): void {
    const ids = new Set(this.ids.get());
    if (!ids.delete(id)) ids.add(id);
    this.ids.set(ids);
  }

  clear(): void {
    if (this.ids.get().size > 0) this.ids.set(new Set());
  }
}
