// Light or dark theme: the system's, unless the reader selects one.

/** Applies the reader's theme; calls `changed` after every change. */
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
    // Storage may be forbidden; then the choice lasts as long as the page.
    return null;
  }
}

function writeChoice(choice) {
  try {
    localStorage.setItem(KEY, choice);
  } catch {
    // Storage may be forbidden.
  }
}

const KEY = 'barograph-theme';
