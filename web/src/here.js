// The communicator of this page. Not here yet.
export class Here {
  constructor() {
    throw new Error('it has no communicator yet');
  }
}

export function obstacle(url) {
  return /^https?:/.test(url) && URL.canParse(url) ? null : 'That is no address of a station.';
}
