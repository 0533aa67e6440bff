import { lazy, Suspense } from "react";
import { useApp } from "../state/app";
import { useStore } from "../state/store";

// None of these is needed for the first sight of the page.
const Palette = lazy(() => import("./Palette"));
const HelpDialog = lazy(() => import("./HelpDialog"));
const SettingsDialog = lazy(() => import("./SettingsDialog"));
const ApprovalTray = lazy(() => import("./ApprovalTray"));
const CompareView = lazy(() => import("./CompareView"));
const BranchDialog = lazy(() => import("./BranchDialog"));

/** What lies over the page. */
export function Overlays() {
  const app = useApp();
  const overlay = useStore(app.overlay);
  const { plan } = useStore(app.branching.state);
  const close = (): void => app.show(null);
  return (
    <Suspense fallback={null}>
      {overlay === "palette" && <Palette onClose={close} />}
      {overlay === "help" && <HelpDialog onClose={close} />}
      {overlay === "settings" && <SettingsDialog onClose={close} />}
      {overlay === "approvals" && <ApprovalTray onClose={close} />}
      {overlay !== null && typeof overlay === "object" && (
        <CompareView left={overlay.compare[0]} right={overlay.compare[1]} onClose={close} />
      )}
      {plan !== null && <BranchDialog plan={plan} key={`${plan.kind} ${plan.turn.turn}`} />}
    </Suspense>
  );
}
