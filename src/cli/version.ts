/** The version that the build wrote in. */
declare const PETRI_VERSION: string | undefined;

export const version: string = typeof PETRI_VERSION === 'string' ? PETRI_VERSION : '0.0.0';
