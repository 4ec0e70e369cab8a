/** Documentation as plain data, as docs.mjs writes it. */

export interface DocsLink {
  /** Name of a page, and of a heading in it; empty: its beginning. */
  readonly page: string;
  readonly at: string;
}

export type Inline =
  | string
  | { readonly code: string }
  | { readonly strong: readonly Inline[] }
  | (DocsLink & { readonly text: readonly Inline[] });

export type Block =
  | { readonly heading: number; readonly id: string; readonly text: readonly Inline[] }
  | { readonly paragraph: readonly Inline[] }
  | { readonly code: string }
  | { readonly list: readonly (readonly Block[])[]; readonly isOrdered: boolean }
  | { readonly table: readonly (readonly (readonly Inline[])[])[] };

export type Pages = Readonly<Record<string, readonly Block[]>>;
