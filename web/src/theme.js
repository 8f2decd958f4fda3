// Light or dark: what the system prefers, unless the reader chose.

/** Follows the reader's choice; calls `changed` after every change. */
export function followTheme(button, changed) {
  const system = matchMedia('(prefers-color-scheme: dark)');
  let chosen = readChoice();

  const apply = () => {
    const dark = chosen ? chosen === 'dark' : system.matches;
    document.documentElement.dataset.theme = dark ? 'dark' : 'light';
    button.textContent = dark ? 'Light' : 'Dark';
    button.setAttribute('aria-label', dark ? 'Use the light theme' : 'Use the dark theme');
    changed();
  };
  button.addEventListener('click', () => {
    chosen = document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark';
    writeChoice(chosen);
    apply();
  });
  system.addEventListener('change', apply);
  apply();
}

function readChoice() {
  try {
    const choice = localStorage.getItem(KEY);
    return choice === 'dark' || choice === 'light' ? choice : null;
  } catch {
    return null; // Storage may be forbidden; then the choice lasts as long as the page.
  }
}

function writeChoice(choice) {
  try {
    localStorage.setItem(KEY, choice);
  } catch {
    // As above.
  }
}

const KEY = 'barograph-theme';
