/** The VS Code side. For now it only activates; commands and views come on top of `src/client`. */
import * as vscode from 'vscode';

/** Called once by VS Code. Everything it registers is disposed with the context. */
export function activate(context: vscode.ExtensionContext): void {
  context.subscriptions.push(vscode.window.createOutputChannel('Petri', { log: true }));
}
